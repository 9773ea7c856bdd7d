// Command measure counts what makes a Go tree easy or hard to read: the length and density of functions,
// files and lines, comments, tests, and the documentation of the API.
//
// It prints tables by room of ARCHITECTURE.md, and lists of the largest items. With -against another
// checkout, changes appear as "before → after". count.go explains each count. Generated files, testdata and
// build are left out.
//
// Three kinds of declarations need a written reason: a function over 40 lines, a struct with an unexported
// field and over 12 fields, and a file over 350 lines. The reason is a line that begins with "Long:", in the
// declaration's doc comment or in a comment above the file's imports.
//
//	// field sets the parameter that a key names.
//	//
//	// Long: a case a parameter, in vLLM's order.
//	func (p *params) field(key string) error {
//
// A struct holds at most 24 values, with the values of nested structs of its own package. A type of the
// product has methods in at most 4 files. limits.txt lists the exceptions to the general limits: values of
// structs, files with methods of one type, files of a package that need each other, and expressions through
// three owners. It also limits code of the decision and of the product, named numbers of the decision, and
// prose that is hard to read. A limit falls with its count. It rises only with a reason in the commit.
//
// With -check the command prints only what is over a limit without a reason, and fails if there is any.
// -except names folders and files whose lengths are not checked.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"strings"
)

func main() {
	against := flag.String("against", "",
		"folder of a checkout to compare with: its figures stand before the arrow")
	checking := flag.Bool("check", false,
		"print only what is too long without a reason, and fail if anything is")
	except := flag.String("except", "", "folders and files that -check passes over, with commas between them")
	flag.Parse()
	dir, err := folder(flag.Args())
	if err == nil && *checking {
		err = check(os.Stdout, dir, strings.Split(*except, ","))
	} else if err == nil {
		err = compare(dir, *against)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "measure:", err)
		os.Exit(1)
	}
}

// folder is the folder to measure: the working directory, unless the command line names another.
func folder(args []string) (string, error) {
	switch len(args) {
	case 0:
		return ".", nil
	case 1:
		return args[0], nil
	default:
		return "", fmt.Errorf("want at most one folder, got %d", len(args))
	}
}

// compare prints the figures of dir. If against is not "", it also prints the changes since against.
func compare(dir, against string) error {
	after, err := measure(dir)
	if err != nil {
		return err
	}
	before := after
	if against != "" {
		if before, err = measure(against); err != nil {
			return err
		}
	}
	if err := report(os.Stdout, before, after); err != nil {
		return err
	}
	return compareDocuments(os.Stdout, dir, cmp.Or(against, dir))
}
