package answercache

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"errors"
	"reflect"
	"strings"
	"testing"
)

func sealFor(t testing.TB, secret byte) cipher.AEAD {
	t.Helper()
	block, err := aes.NewCipher(bytes.Repeat([]byte{secret}, 32))
	if err != nil {
		t.Fatal(err)
	}
	seal, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		t.Fatal(err)
	}
	return seal
}

func kept(body string) *Answer {
	return &Answer{
		Made: then, ContentType: "application/json", Stream: true, Events: 7, Body: []byte(body),
		Makers: []Maker{{"d0", "http://d0:8000", 1.25}, {"p0", "http://p0:8000", 2.5}},
	}
}

// A written value can be read again, sealed or not, compressed or not, and only under its own key.
func TestValuesComeBack(t *testing.T) {
	for name, codec := range map[string]*Codec{
		"plain": NewCodec(1<<20, nil), "sealed": NewCodec(1<<20, sealFor(t, 1)),
	} {
		for _, body := range []string{"", "short", strings.Repeat("a long answer ", 1000)} {
			want := kept(body)
			value := codec.Append(nil, key(1), want)
			got, err := codec.Read(value, key(1))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if !got.Made.Equal(want.Made) || string(got.Body) != body {
				t.Errorf("%s: %v, %d bytes", name, got.Made, len(got.Body))
			}
			got.Made, got.Body = want.Made, want.Body
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s: got %+v, want %+v", name, got, want)
			}
			if _, err := codec.Read(value, key(2)); !errors.Is(err, ErrForged) {
				t.Errorf("%s: under another key: %v", name, err)
			}
		}
	}
}

// A value with a changed, missing or additional byte is refused. So is a value that another secret sealed,
// and an unsealed value if a secret is set.
func TestChangedValuesAreNotTaken(t *testing.T) {
	plain, sealed := NewCodec(1<<20, nil), NewCodec(1<<20, sealFor(t, 1))
	for name, codec := range map[string]*Codec{"plain": plain, "sealed": sealed} {
		value := codec.Append(nil, key(1), kept("the answer"))
		for i := range value {
			changed := bytes.Clone(value)
			changed[i] ^= 4
			if a, err := codec.Read(changed, key(1)); err == nil {
				t.Errorf("%s: byte %d of %d was changed, but %q was read", name, i, len(value), a.Body)
			}
			if a, err := codec.Read(value[:i], key(1)); err == nil {
				t.Errorf("%s: only %d of %d bytes, but %q was read", name, i, len(value), a.Body)
			}
		}
		if _, err := codec.Read(append(bytes.Clone(value), 0), key(1)); err == nil {
			t.Errorf("%s: a value with an additional byte was read", name)
		}
	}
	for name, read := range map[string]func() (*Answer, error){
		"other secret": func() (*Answer, error) {
			return NewCodec(1<<20, sealFor(t, 2)).Read(sealed.Append(nil, key(1), kept("a")), key(1))
		},
		"sealed for none": func() (*Answer, error) {
			return plain.Read(sealed.Append(nil, key(1), kept("a")), key(1))
		},
		"plain for seal": func() (*Answer, error) {
			return sealed.Read(plain.Append(nil, key(1), kept("a")), key(1))
		},
		"too long": func() (*Answer, error) {
			return NewCodec(1<<10, nil).Read(plain.Append(nil, key(1), kept(strings.Repeat("a", 1<<12))), key(1))
		},
	} {
		if _, err := read(); err == nil {
			t.Errorf("%s: the value was read", name)
		}
	}
}

// For any stored bytes, reading ends, needs little memory, and gives no answer that was not written.
func FuzzValues(f *testing.F) {
	plain := NewCodec(1<<12, nil)
	f.Add(plain.Append(nil, key(1), kept("a")))
	f.Add(plain.Append(nil, key(1), kept(strings.Repeat("a", 1<<11))))
	f.Add([]byte("tan1\x02"))
	f.Fuzz(func(t *testing.T, value []byte) {
		a, err := plain.Read(value, key(1))
		if err != nil {
			return
		}
		if len(a.Body) > 1<<12 {
			t.Fatalf("%+v", a)
		}
		if again, err := plain.Read(plain.Append(nil, key(1), a), key(1)); err != nil ||
			!bytes.Equal(again.Body, a.Body) {
			t.Fatalf("%v", err)
		}
	})
}
