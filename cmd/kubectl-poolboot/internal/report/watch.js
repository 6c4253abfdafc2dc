// Replaces the page by a newer one, and keeps the keyboard focus and what is open.
const keyOf = (element) => element.tagName + (element.getAttribute("href") ?? element.parentElement?.id)
setInterval(async () => {
  const time = document.getElementById("time")
  try {
    const response = await fetch("/", { signal: AbortSignal.timeout(30000) })
    const text = await response.text()
    if (!response.ok) throw new Error(text)
    const next = new DOMParser().parseFromString(text, "text/html").querySelector("body")
    const isOpen = new Map([...document.querySelectorAll("details")].map((details) => [details.id, details.open]))
    for (const details of next.querySelectorAll("details")) details.open = isOpen.get(details.id) ?? details.open
    const focused = keyOf(document.activeElement)
    document.body.replaceChildren(...next.childNodes)
    const same = [...document.querySelectorAll("a, summary")].find((element) => keyOf(element) === focused)
    same?.focus({ preventScroll: true })
  } catch (error) {
    time.textContent = "This page is not up to date: " + (error.name === "TimeoutError" ? "no answer in 30 seconds" : error.message)
  }
}, 10000)
