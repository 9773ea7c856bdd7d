package config

import (
	"bytes"
	"crypto"
	"crypto/tls"
	"slices"
)

// SameTLS reports whether b is what a is, whenever the files were read.
func SameTLS(a, b *tls.Config) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.ServerName == b.ServerName && a.InsecureSkipVerify == b.InsecureSkipVerify &&
		a.RootCAs.Equal(b.RootCAs) &&
		slices.EqualFunc(a.Certificates, b.Certificates, sameCertificate)
}

func sameCertificate(a, b tls.Certificate) bool {
	key, ok := a.PrivateKey.(interface {
		Equal(x crypto.PrivateKey) bool
	})
	return ok && key.Equal(b.PrivateKey) && slices.EqualFunc(a.Certificate, b.Certificate, bytes.Equal)
}
