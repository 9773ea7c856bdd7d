package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tandem-router/tandem/internal/lab/replay/ablate"
)

// ablateCommand measures what each mechanism of the decision is worth.
func ablateCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "ablate", Short: "measure what each mechanism of the decision is worth", Args: noArgs,
		Long: "Plays a set of cells with each mechanism of the decision switched off, and compares the results\n" +
			"with the whole decision. The whole decision is played with several seeds, which shows the noise.",
		Example: "  tandem replay ablate --traces FOLDER --mechanisms pieces,lengths --seeds 2",
	}
	o := ablate.Options{}
	fs := c.Flags()
	tracesFlag(fs, &o.Traces)
	cells := fs.String("cells", "",
		"`names`, or beginnings of names, of the cells to play; all if empty")
	names := fs.String("mechanisms", "", "`names`, or beginnings of names, of the mechanisms to switch off: "+
		strings.Join(ablate.Names(), ", ")+"; all if empty")
	fs.IntVar(&o.Seeds, "seeds", 3, "plays of each cell with different seeds; the traffic is the same in each")
	fs.DurationVar(&o.For, "for", 45*time.Second, "approximate virtual `time` of a play")
	list := fs.Bool("list", false, "print the names of the cells and stop")
	asJSON := fs.Bool("json", false, "print JSON, with the figures of each cell")
	quiet := fs.Bool("quiet", false, "no progress")
	lists(c, "mechanisms", ablate.Names()...)
	c.RunE = func(c *cobra.Command, _ []string) error {
		return runAblation(c, &o, ablationFlags{named(*cells), named(*names), *list, *asJSON, *quiet})
	}
	return c
}

// ablationFlags has the flags of ablate besides its options.
type ablationFlags struct {
	cells, mechanisms   []string
	list, asJSON, quiet bool
}

func runAblation(c *cobra.Command, o *ablate.Options, f ablationFlags) error {
	var unknown string
	if o.Mechanisms, unknown = ablate.Named(f.mechanisms); unknown != "" {
		return wrongValue("--mechanisms: there is no mechanism %q; there are %s", unknown,
			strings.Join(ablate.Names(), ", "))
	}
	if err := errors.Join(aboveZero("seeds", float64(o.Seeds)), aboveZero("for", o.For.Seconds())); err != nil {
		return err
	}
	if o.Cells, unknown = ablate.NamedCells(f.cells); unknown != "" {
		return wrongValue("--cells: no cell begins with %q; --list prints the names", unknown)
	}
	if f.list {
		return listAblated(c.OutOrStdout(), o.Cells)
	}
	if !f.quiet {
		o.Progress = newReporter(c.ErrOrStderr()).say
	}
	x, err := ablate.Run(c.Context(), *o)
	if err != nil {
		return err
	}
	if f.asJSON {
		return json.NewEncoder(c.OutOrStdout()).Encode(x)
	}
	return x.Print(c.OutOrStdout())
}

func listAblated(w io.Writer, cells []ablate.Cell) error {
	for i := range cells {
		mark := ""
		if cells[i].Blind() {
			mark = " blind"
		}
		if _, err := fmt.Fprintln(w, cells[i].Name()+mark); err != nil {
			return err
		}
	}
	return nil
}

// named parts names with commas between them; none for "".
func named(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}
