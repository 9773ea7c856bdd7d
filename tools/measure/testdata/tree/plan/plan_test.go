package plan

import "fmt"

func ExamplePool() {
	fmt.Println("a pool")
	// Output: a pool
}

func ExampleFree() { // nothing to compare
	Free()
}
