// Package server is Poolboot's config server: what it answers to a host that asks for its configuration, and when.
//
// A host comes with the pointer that its user data held: a URL that ends in a pointer id, and a bearer token. The
// server finds the host's PoolbootConfig by the pointer id, notes the request in it, waits until the machine's overlay
// stands and answers with two parts: the pool's configuration (a URL and its SHA-512) and the overlay. It then serves
// the pool's bytes, which never change under their name.
//
// A host without a Machine comes with an enrollment token and a name instead. The server notes that it asks, and once a
// PoolbootConfig was made for it, it is a host like any other.
//
// Status codes follow from what Ignition does with them: 5xx and dropped connections are tried again, for ever; any 4xx
// ends the boot. So 401, 403 and 404 are for what can never succeed, and everything that may still come is 503.
//
// The package knows HTTP and tokens. It has no Kubernetes client: where records, overlays and rendered configs come
// from, and how a boot is recorded, is behind the small interfaces in sources.go. It must not log or answer with a
// token or with anything out of an overlay.
package server
