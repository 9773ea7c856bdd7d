package main

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tandem-router/tandem/internal/config"
)

// keyCommand is about client keys.
func keyCommand() *cobra.Command {
	c := &cobra.Command{Use: "key", Short: "make keys for clients", Args: noArgs}
	c.RunE = func(c *cobra.Command, _ []string) error {
		return wrongUse("name what to do, as in: tandem key new NAME")
	}
	c.AddCommand(newKeyCommand())
	return c
}

// newKeyCommand makes a client key. The line for the key file goes to stdout alone, so that a shell can
// append it.
func newKeyCommand() *cobra.Command {
	var k config.Key
	c := &cobra.Command{
		Use: "new NAME", Short: "make a key for a client, and its line for the key file",
		Long: "Makes a key for a client. Prints the secret to stderr, once: only its hash is kept. " +
			"Prints the line for the file\nof keys_file to stdout, so this adds a key to a running router:\n\n" +
			"  tandem key new team-a >> /etc/tandem/keys",
		Args: between(1, 1, "one name"),
	}
	c.Flags().StringVar(&k.Tenant, "tenant", "", "`name` of the tenant of the key; the default is its own name")
	c.RunE = func(c *cobra.Command, args []string) error {
		var random [32]byte
		_, _ = rand.Read(random[:]) // never fails
		secret := "sk-tandem-" + base64.RawURLEncoding.EncodeToString(random[:])
		sum := sha256.Sum256([]byte(secret))
		k.Name, k.SHA256 = args[0], hex.EncodeToString(sum[:])
		line, err := config.KeyLine(k)
		if err != nil {
			return wrongUse("%s", err)
		}
		fmt.Fprintf(c.ErrOrStderr(), "the secret of %s, which is shown only now: %s\n", k.Name, secret)
		_, err = fmt.Fprintln(c.OutOrStdout(), line)
		return err
	}
	return c
}
