// Package replay plays recorded traffic through Tandem's decisions in virtual time, on simulated engines. It
// compares the simulated engines with recorded runs of real engines.
package replay
