package keys

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// table has n keys with the secrets secret-0, secret-1 and so on.
func table(n int) *Table {
	list := make([]Key, n)
	for i := range list {
		list[i] = Key{Name: fmt.Sprint("team-", i), Hash: sha256.Sum256(fmt.Append(nil, "secret-", i))}
	}
	return NewTable(list, new(Accounts))
}

func TestOnlyTheSecretFindsItsKey(t *testing.T) {
	longest := strings.Repeat("x", LongestSecret)
	with := NewTable([]Key{
		{Name: "a", Hash: sha256.Sum256([]byte("abc"))},
		{Name: "b", Hash: sha256.Sum256([]byte(longest))},
		{Name: "nothing", Hash: sha256.Sum256(nil)},
		{Name: "long", Hash: sha256.Sum256([]byte(longest + "x"))},
	}, new(Accounts))
	for secret, want := range map[string]string{
		"abc": "a", longest: "b", "": "", "ab": "", "abcd": "", "abc\x00": "", "ABC": "", longest + "x": "",
	} {
		got := ""
		if k := with.Find(secret); k != nil {
			got = k.Name
		}
		if got != want {
			t.Errorf("%.20q is of %q, want %q", secret, got, want)
		}
	}
	if none := NewTable(nil, new(Accounts)); none.Find("abc") != nil || none.Open() || new(Table).Open() {
		t.Error("a table without keys lets somebody in")
	}
	if !Everybody().Open() {
		t.Error("the table for everybody lets nobody in")
	}
}

func TestWithoutNamesWhatIsGone(t *testing.T) {
	got := slices.Sorted(table(3).Without(table(1)))
	if !slices.Equal(got, []string{"team-1", "team-2"}) || len(slices.Collect(table(1).Without(table(3)))) > 0 {
		t.Errorf("gone are %q", got)
	}
}

// A look-up allocates nothing, whether the secret is right or wrong.
func TestFindAllocatesNothing(t *testing.T) {
	with := table(10)
	if n := testing.AllocsPerRun(100, func() { with.Find("secret-1"); with.Find("wrong-secret") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkFind compares right and wrong secrets among few keys and many.
func BenchmarkFind(b *testing.B) {
	for _, n := range []int{1, 10_000} {
		with := table(n)
		for name, secret := range map[string]string{"right": "secret-0", "wrong": "secret-x"} {
			b.Run(fmt.Sprintf("%s/keys=%d", name, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					with.Find(secret)
				}
			})
		}
	}
}
