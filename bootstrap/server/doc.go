// Package server implements Poolboot's config server: it answers hosts that request their configuration.
//
// A host sends the URL and the bearer token of the pointer in its user data. The server finds the host's PoolbootConfig
// by the URL, records the request in it, waits until the machine's overlay exists and answers with two parts: the
// pool's configuration (a URL and its SHA-512) and the overlay. Then it serves the bytes of the pool's configuration,
// which never change under their name.
//
// The agent of a running host sends the client certificate of its kubelet instead of a token. The server returns what
// the host should run, and records that the host requests the registration of its Node.
//
// A host without a Machine sends an enrollment token and a name instead. The server records the request. Once the
// manager has created a PoolbootConfig for the host, the server treats it like any other host.
//
// The status codes depend on how Ignition handles them: it retries after 5xx and dropped connections without limit, and
// any 4xx ends the boot. So 401, 403 and 404 are for requests that can never succeed, and 503 is for everything that
// can succeed later.
//
// The package implements HTTP and token checks. It has no Kubernetes client: it reads records, overlays and rendered
// configs, and records boots, through the small interfaces in sources.go. It must not log tokens or the content of
// overlays, nor put them into error messages.
package server
