package server

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"strconv"
	"strings"
)

// file is a download whose content never changes. It is immutable.
type file struct {
	// gzip is the compressed content. The gzip file is the resource itself, and not a transfer encoding: Ignition
	// requests only "identity", and decompresses because of the compression field of the resource.
	gzip []byte
	// sha512 is the hash of the uncompressed content, in hex.
	sha512 string
	// etag and length are values of response headers.
	etag, length []string
}

// packFile returns the download of some content, whose SHA-512 in hex is hash.
func packFile(plain []byte, hash string) (file, error) {
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return file{}, err
	}
	if _, err := w.Write(plain); err != nil {
		return file{}, err
	}
	if err := w.Close(); err != nil {
		return file{}, err
	}
	return file{gzip: bytes.Clone(packed.Bytes()), sha512: hash, etag: []string{`"` + hash + `"`}, length: []string{strconv.Itoa(packed.Len())}}, nil
}

// writeFile answers a request with a file, or with 304 if the client has it. Range requests are not supported: a host
// verifies the whole file, and Ignition sends none.
func writeFile(w http.ResponseWriter, r *http.Request, f file, cacheControl []string) error {
	h := w.Header()
	h["Content-Type"] = typeGzip
	h["Cache-Control"] = cacheControl
	h["Etag"] = f.etag
	if known := r.Header.Get("If-None-Match"); known != "" && (known == "*" || strings.Contains(known, f.etag[0])) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	h["Content-Length"] = f.length
	if r.Method == http.MethodHead {
		w.WriteHeader(http.StatusOK)
		return nil
	}
	_, err := w.Write(f.gzip)
	return err
}
