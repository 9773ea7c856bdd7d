// Package plan plans.
package plan

// Take is shorter now.
func Take() {}
