// Package apimodule verifies what projects that import the module in api/ rely on: it contains the types, and requires
// only their dependencies.
package apimodule
