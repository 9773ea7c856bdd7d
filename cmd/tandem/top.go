package main

import (
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tandem-router/tandem/internal/top"
)

// topCommand shows a running router in the terminal, as its page does in a browser.
func topCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "top", Short: "show a running router in the terminal: replicas, pairs, requests", Args: noArgs,
		Long: "Shows a running router: replicas, pairs, requests and why they went where they went. " + adminNote,
	}
	admin := adminFlag(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		router := top.Source{Base: adminURL(*admin), Token: adminToken()}
		return top.Run(c.Context(), router, os.Stdin, c.OutOrStdout())
	}
	return c
}

// adminNote says where commands get the admin token.
const adminNote = "" +
	"\nThe environment variable TANDEM_ADMIN_TOKEN holds the admin token where the router has one."

// adminFlag adds the flag that says where the router's admin listener is.
func adminFlag(c *cobra.Command) *string {
	return c.Flags().String("admin", "127.0.0.1:9091", "`address` or URL of the router's admin listener")
}

// adminURL returns the URL of the admin listener at an address, which may already be a URL.
func adminURL(address string) string {
	if strings.Contains(address, "://") {
		return address
	}
	return "http://" + address
}

// adminToken returns the operator's token for the admin listener; "" for none.
func adminToken() string { return os.Getenv("TANDEM_ADMIN_TOKEN") }
