package main

import (
	"context"
	"io"
	"os"
	"strings"

	"github.com/tandem-router/tandem/internal/top"
)

// runTop shows a running router in the terminal, as its page does in a browser.
func runTop(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	fs := newFlags("top", "[-admin ADDRESS]\n\n"+
		"Shows a running router: replicas, pairs, requests and why they went where they went. TANDEM_ADMIN_TOKEN "+
		"has the admin\n"+
		"token, where there is one.", stderr)
	admin := fs.String("admin", "127.0.0.1:9091", "`address` of its admin listener")
	if err := parseAlone(fs, args); err != nil {
		return err
	}
	return top.Run(ctx, top.Source{Base: adminURL(*admin), Token: adminToken()}, os.Stdin, stdout)
}

// adminURL is the admin listener at an address, which may be a URL already.
func adminURL(address string) string {
	if strings.Contains(address, "://") {
		return address
	}
	return "http://" + address
}

// adminToken is what the operator presents to it, "" for nothing.
func adminToken() string { return os.Getenv("TANDEM_ADMIN_TOKEN") }
