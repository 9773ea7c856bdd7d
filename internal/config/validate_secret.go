package config

import "strings"

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
