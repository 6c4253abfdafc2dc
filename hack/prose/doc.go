// Package prose checks comments and documentation: the width of comments, links and anchors, and that the tests and the
// Go code in the documentation exist.
package prose
