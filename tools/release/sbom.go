package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// bill is a bill of materials by CycloneDX 1.6, with the fields that this command writes.
type bill struct {
	Format       string      `json:"bomFormat"`
	Spec         string      `json:"specVersion"`
	Serial       string      `json:"serialNumber"`
	Version      int         `json:"version"`
	Metadata     metadata    `json:"metadata"`
	Components   []component `json:"components"`
	Dependencies []dependsOn `json:"dependencies"`
}

type metadata struct {
	Timestamp string    `json:"timestamp"`
	Component component `json:"component"`
}

type component struct {
	Type     string     `json:"type"`
	Ref      string     `json:"bom-ref"`
	Name     string     `json:"name"`
	Version  string     `json:"version"`
	PURL     string     `json:"purl,omitempty"`
	Licenses []licensed `json:"licenses,omitempty"`
	Hashes   []hash     `json:"hashes,omitempty"`
}

type licensed struct {
	Expression string `json:"expression"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type dependsOn struct {
	Ref string   `json:"ref"`
	On  []string `json:"dependsOn"`
}

// writeSBOM writes the parts of the binary as a bill of materials.
func (m *maker) writeSBOM(b built, arch string) error {
	data, err := os.ReadFile(b.file)
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(m.bill(b, sha256.Sum256(data)), "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(m.path("tandem_linux_"+arch+".cdx.json"), append(text, '\n'), 0o644)
}

func (m *maker) bill(b built, sum [sha256.Size]byte) bill {
	self := component{
		Type: "application", Ref: "tandem", Name: "tandem", Version: m.version,
		Licenses: []licensed{{"Apache-2.0"}}, Hashes: []hash{{"SHA-256", fmt.Sprintf("%x", sum)}},
	}
	all := bill{
		Format: "CycloneDX", Spec: "1.6", Version: 1, Serial: serial(sum),
		Metadata:     metadata{m.at.Format(time.RFC3339), self},
		Dependencies: []dependsOn{{Ref: self.Ref}},
	}
	for _, p := range b.parts {
		c := component{Type: "library", Ref: p.purl, Name: p.name, Version: p.version, PURL: p.purl}
		if p.license != "" {
			c.Licenses = []licensed{{p.license}}
		}
		all.Components = append(all.Components, c)
		all.Dependencies[0].On = append(all.Dependencies[0].On, c.Ref)
	}
	return all
}

// serial is a UUID of the binary (version 8: custom bits), so that the same binary has the same bill.
func serial(sum [sha256.Size]byte) string {
	u := sum[:16]
	u[6], u[8] = u[6]&0x0f|0x80, u[8]&0x3f|0x80
	return fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}
