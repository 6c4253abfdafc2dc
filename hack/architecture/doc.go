// Package architecture compares the imports of the packages with the diagram and the rules in docs/dev/design.md.
package architecture
