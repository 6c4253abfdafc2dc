// Returns what is wrong: elements that overflow, texts and bars with too little contrast, and charts without bars.
function color(text) {
  const [r, g, b, a = 1] = text.match(/[\d.]+/g).map(Number)
  return { rgb: [r, g, b], a }
}
function luminance(rgb) {
  const [r, g, b] = rgb.map((c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
  return 0.2126 * r + 0.7152 * g + 0.0722 * b
}
function contrast(a, b) {
  const [x, y] = [luminance(a), luminance(b)].sort((x, y) => y - x)
  return (x + 0.05) / (y + 0.05)
}
function background(element) {
  for (let e = element; e; e = e.parentElement) {
    const { rgb, a } = color(getComputedStyle(e).backgroundColor)
    if (a > 0) return rgb
  }
  return [255, 255, 255]
}
function bars() {
  return [...document.querySelectorAll("svg path")].filter((p) => /fill:rgb/.test(p.getAttribute("style")) && p.checkVisibility() && p.getBBox().width > 0)
}
(() => {
  const problems = []
  const right = document.documentElement.clientWidth
  if (document.documentElement.scrollWidth > right) problems.push("the page is wider than the screen")
  for (const e of document.querySelectorAll("body *")) {
    if (!e.checkVisibility()) continue
    const box = e.getBoundingClientRect()
    if (box.width > 0 && (box.right > right + 1 || box.left < -1)) problems.push(`${e.tagName} ${e.textContent.slice(0, 40)} overflows`)
    const hasText = [...e.childNodes].some((n) => n.nodeType === Node.TEXT_NODE && n.textContent.trim())
    const style = getComputedStyle(e)
    if (hasText && e.tagName !== "STYLE") {
      const got = contrast(color(e.closest("svg") ? style.fill : style.color).rgb, background(e))
      if (got < 4.5) problems.push(`${e.tagName} ${e.textContent.slice(0, 40)} has the contrast ${got}`)
      if (e.closest("svg")) {
        const svg = e.closest("svg")
        const size = parseFloat(style.fontSize) * svg.getBoundingClientRect().width / svg.viewBox.baseVal.width
        if (size < 11) problems.push(`${e.textContent} has the font size ${size}`)
      }
    }
  }
  for (const bar of bars()) {
    const got = contrast(color(getComputedStyle(bar).fill).rgb, background(bar))
    if (got < 3) problems.push(`a bar has the contrast ${got}`)
  }
  for (const swatch of document.querySelectorAll(".legend li, .state")) {
    if (!swatch.checkVisibility()) continue
    const got = contrast(color(getComputedStyle(swatch, "::before").backgroundColor).rgb, background(swatch))
    if (got < 3) problems.push(`${swatch.textContent} has the contrast ${got}`)
  }
  const charts = document.querySelectorAll("figure")
  if (charts.length < 5) problems.push(`${charts.length} charts`)
  for (const chart of charts) {
    const own = bars().filter((bar) => chart.contains(bar))
    if (own.length < 3) problems.push(`${chart.id} has ${own.length} bars`)
  }
  return problems.slice(0, 20)
})()
