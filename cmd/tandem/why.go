package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"

	"github.com/tandem-router/tandem/internal/why"
)

// runWhy shows why a request went where it went: from the memory of a running router, or from its file of
// decisions.
func runWhy(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	fs := newFlags("why", "[flags] ID\n\n"+
		"Shows why a request went where it went, and with other weights what those would have chosen. ID is the "+
		"X-Request-Id of\n"+
		"its answer. TANDEM_ADMIN_TOKEN has the admin token, where there is one.", stderr)
	file := fs.String("file", "",
		"look into this `file` of decisions (decisions.file), and those that were put aside beside it")
	admin := fs.String("admin", "127.0.0.1:9091", "ask the router whose admin listener has this `address`")
	var w why.Weights
	number := func(name string, to **float64) {
		fs.Func(name, "weigh with this `number` instead", func(s string) error {
			v, err := strconv.ParseFloat(s, 64)
			if err != nil || !(v >= 0) || math.IsInf(v, 0) {
				return errors.New("choose a number from 0 up")
			}
			*to = &v
			return nil
		})
	}
	number("alpha", &w.Alpha)
	number("beta", &w.Beta)
	number("gamma", &w.Gamma)
	number("decode-penalty", &w.DecodePenalty)
	if err := parse(fs, args); err != nil {
		return err
	}
	if fs.NArg() != 1 {
		fmt.Fprintf(stderr, "tandem why: name one request; flags go before its id\n\n")
		fs.Usage()
		return errUsage
	}
	r, err := findRecord(ctx, *file, *admin, fs.Arg(0))
	if err != nil {
		return err
	}
	return r.Page(stdout, w)
}

func findRecord(ctx context.Context, file, admin, id string) (*why.Record, error) {
	if file != "" {
		return why.InFiles(file, id)
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return why.At(ctx, adminURL(admin), adminToken(), id)
}
