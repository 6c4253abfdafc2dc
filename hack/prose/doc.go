// Package prose checks what people read: that comments fit beside a diff, that links and anchors lead somewhere, and
// that the tests named in the documentation exist.
package prose
