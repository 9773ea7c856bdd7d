// Package replay plays recorded traffic through Tandem's decisions in virtual time, and holds the simulated
// engines that it does so with to runs of real ones.
package replay
