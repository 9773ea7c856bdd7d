package config

import (
	"fmt"
	"os"
	"strings"
)

func (ck *checker) pair(field, cert, key string) {
	switch {
	case cert != "" && key == "":
		ck.add(field+".cert", "has no key beside it", "set "+field+".key too")
	case cert == "" && key != "":
		ck.add(field+".key", "has no certificate beside it", "set "+field+".cert too")
	}
}

func (ck *checker) secret(field string, s Secret, required bool) {
	const fix = "write {file: path}, {env: NAME} or {value: text}"
	n := 0
	for _, v := range []string{s.Value, s.File, s.Env} {
		if v != "" {
			n++
		}
	}
	switch {
	case n > 1:
		ck.add(field, "names the secret in more than one way", "keep one of value, file and env")
	case n == 0 && required:
		ck.add(field, "is empty", fix)
	case s.Value == redacted:
		ck.add(field+".value", "is the placeholder that stands for a secret in print", fix)
	case strings.ContainsAny(s.Value, "\r\n\x00"):
		ck.add(field+".value", "holds a line break", "a secret is one line")
	}
}

// least wants a secret that is known to have at least so many bytes, because a key is made from it.
func (ck *checker) least(field string, s Secret, bytes int) {
	if n := len(s.Reveal()); n > 0 && n < bytes {
		ck.add(field, fmt.Sprintf("has %d bytes", n), fmt.Sprintf("give at least %d", bytes))
	}
}

const (
	leastSecret = 32 // bytes of a secret that answers are encrypted with
	leastSalt   = 16 // bytes of a secret that prompts of tenants are kept apart with
)

func (ck *checker) resolve(field string, s *Secret) {
	switch {
	case s.File != "":
		data, err := readFile(s.File)
		if err != nil {
			ck.add(field+".file", err.Error(), "make the file readable or name another")
			return
		}
		s.text = strings.TrimRight(string(data), "\r\n")
		if s.text == "" {
			ck.add(field+".file", "is empty", "write the secret into it")
		}
	case s.Env != "":
		s.text = os.Getenv(s.Env)
		if s.text == "" {
			ck.add(field+".env", s.Env+" is not set", "set it before the start")
		}
	}
	if strings.ContainsAny(s.text, "\r\n\x00") {
		ck.add(field, "holds a line break", "a secret is one line")
	}
}
