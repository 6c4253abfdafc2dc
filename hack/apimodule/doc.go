// Package apimodule holds the module in api/ to what those who import it count on: it brings them the types and what
// these need.
package apimodule
