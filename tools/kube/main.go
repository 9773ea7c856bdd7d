// Command kube runs etcd or kube-apiserver, as the first argument says. Both are built from their modules,
// for the tests of discovery.
package main

import (
	"fmt"
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func main() {
	switch {
	case len(os.Args) > 1 && os.Args[1] == "etcd":
		etcdmain.Main(append(os.Args[:1], os.Args[2:]...))
	case len(os.Args) > 1 && os.Args[1] == "kube-apiserver":
		os.Args = append(os.Args[:1], os.Args[2:]...)
		os.Exit(cli.Run(app.NewAPIServerCommand()))
	default:
		fmt.Fprintln(os.Stderr, "usage: kube etcd|kube-apiserver FLAGS")
		os.Exit(2)
	}
}
