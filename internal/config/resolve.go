package config

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
)

// resolved reads the secrets and tries the certificates that the document names.
func (doc *document) resolved() (*Config, error) {
	c := doc.config
	var ck checker
	for i := range c.APIKeys {
		ck.resolve(fmt.Sprintf("api_keys[%d]", i), &c.APIKeys[i])
	}
	readKeys(&ck, c)
	ck.resolve("isolation.salt", &c.Isolation.Salt)
	ck.least("isolation.salt", c.Isolation.Salt, leastSalt)
	ck.resolve("admin.token", &c.Admin.Token)
	ck.resolve("routers.valkey.password", &c.Routers.Valkey.Password)
	ck.resolve("answer_cache.valkey.password", &c.AnswerCache.Valkey.Password)
	ck.resolve("answer_cache.valkey.secret", &c.AnswerCache.Valkey.Secret)
	ck.resolve("answer_cache.valkey.former_secret", &c.AnswerCache.Valkey.FormerSecret)
	ck.least("answer_cache.valkey.secret", c.AnswerCache.Valkey.Secret, leastSecret)
	ck.least("answer_cache.valkey.former_secret", c.AnswerCache.Valkey.FormerSecret, leastSecret)
	ck.resolve("pools.prefill.api_key", &c.Pools.Prefill.APIKey)
	ck.resolve("pools.decode.api_key", &c.Pools.Decode.APIKey)
	if _, err := c.FrontCertificate(); err != nil {
		ck.add("tls", err.Error(), "give a PEM certificate and its key")
	}
	if _, err := c.EngineTLS(c.Pools.Prefill); err != nil {
		ck.add("pools.prefill.tls", err.Error(), "give PEM files")
	}
	if _, err := c.EngineTLS(c.Pools.Decode); err != nil {
		ck.add("pools.decode.tls", err.Error(), "give PEM files")
	}
	if _, err := clientTLS(c.Routers.Valkey.TLS); err != nil {
		ck.add("routers.valkey.tls", err.Error(), "give PEM files")
	}
	if _, err := clientTLS(c.AnswerCache.Valkey.TLS); err != nil {
		ck.add("answer_cache.valkey.tls", err.Error(), "give PEM files")
	}
	if err := doc.report(doc.located(ck.problems)); err != nil {
		return nil, err
	}
	return c, nil
}

// anchor makes the file names in c absolute; relative ones start at the folder of the configuration file at
// path.
func (c *Config) anchor(path string) {
	folder, err := filepath.Abs(filepath.Dir(path))
	if err != nil { // there is no working folder
		folder = filepath.Dir(path)
	}
	k := &c.Discovery.Kubernetes // its files are read again without a reload
	for _, name := range append(
		c.inputs(), &c.Tracing.File, &c.Decisions.File, &c.State.File, &c.Usage.File, &k.TokenFile, &k.CA,
	) {
		if *name != "" && !filepath.IsAbs(*name) {
			*name = filepath.Join(folder, *name)
		}
	}
}

// inputs lists every place of c that names a file to read.
func (c *Config) inputs() []*string {
	names := []*string{&c.TLS.Cert, &c.TLS.Key, &c.Admin.Token.File, &c.KeysFile, &c.Isolation.Salt.File}
	for _, p := range []*Pool{&c.Pools.Prefill, &c.Pools.Decode} {
		names = append(names, &p.APIKey.File, &p.TLS.CA, &p.TLS.Cert, &p.TLS.Key)
	}
	for i := range c.APIKeys {
		names = append(names, &c.APIKeys[i].File)
	}
	for i := range c.Keys {
		names = append(names, &c.Keys[i].Secret.File)
	}
	v := &c.AnswerCache.Valkey
	names = append(names, &v.Password.File, &v.Secret.File, &v.FormerSecret.File)
	names = append(names, &v.TLS.CA, &v.TLS.Cert, &v.TLS.Key)
	r := &c.Routers.Valkey
	return append(names, &r.Password.File, &r.TLS.CA, &r.TLS.Cert, &r.TLS.Key)
}

// files lists the files that c names, to watch them too.
func (c *Config) files() []string {
	var files []string
	for _, name := range c.inputs() {
		if *name != "" {
			files = append(files, *name)
		}
	}
	return files
}

// WantsKeys reports whether clients need a key. If clients need a key and there is no key, nobody is let in.
func (c *Config) WantsKeys() bool { return len(c.APIKeys)+len(c.Keys) > 0 || c.KeysFile != "" }

// ClientKeys returns all client keys: those of api_keys, keys and keys_file, in this order. A key of
// api_keys has no name in the file. It gets the names key-1, key-2 and so on by its place. Its place may
// change, so its tenant is named by its hash.
func (c *Config) ClientKeys() []Key {
	all := make([]Key, 0, len(c.APIKeys)+len(c.Keys)+len(c.FileKeys))
	for i, s := range c.APIKeys {
		k := Key{Name: fmt.Sprintf("key-%d", i+1), Secret: s}
		sum := k.Hash()
		k.Tenant = "sha256 " + hex.EncodeToString(sum[:])
		all = append(all, k)
	}
	return append(append(all, c.Keys...), c.FileKeys...)
}

// FrontCertificate reads the certificate of the front listener, nil when it speaks plain HTTP.
func (c *Config) FrontCertificate() (*tls.Certificate, error) {
	if !c.TLS.Enabled() {
		return nil, nil
	}
	cert, err := keyPair(c.TLS.Cert, c.TLS.Key)
	if err != nil {
		return nil, err
	}
	return &cert, nil
}

// keyPair reads a certificate and its key.
func keyPair(certFile, keyFile string) (tls.Certificate, error) {
	cert, err := readFile(certFile)
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := readFile(keyFile)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(cert, key)
}

// EngineTLS builds the TLS configuration for the https replicas of p, one of c's pools. It reads the files.
// Every call gives a new value.
func (c *Config) EngineTLS(p Pool) (*tls.Config, error) { return clientTLS(p.TLS) }

// ServerTLS builds the TLS configuration for the server, nil where it is spoken to in plain.
func (v *ValkeyServer) ServerTLS() (*tls.Config, error) {
	if !v.Secure {
		return nil, nil
	}
	return clientTLS(v.TLS)
}

func clientTLS(c ClientTLS) (*tls.Config, error) {
	t := &tls.Config{
		ServerName: c.ServerName, InsecureSkipVerify: c.InsecureSkipVerify, MinVersion: tls.VersionTLS12,
	}
	if c.CA != "" {
		pem, err := readFile(c.CA)
		if err != nil {
			return nil, err
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(pem) {
			return nil, errors.New(c.CA + " holds no PEM certificate")
		}
	}
	if c.Cert != "" {
		cert, err := keyPair(c.Cert, c.Key)
		if err != nil {
			return nil, err
		}
		t.Certificates = []tls.Certificate{cert}
	}
	return t, nil
}
