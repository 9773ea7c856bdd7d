// Package chart tests deploy/helm/tandem and deploy/kubernetes with the real helm and the built binary: make
// test-chart.
package chart
