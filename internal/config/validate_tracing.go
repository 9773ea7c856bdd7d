package config

import (
	"fmt"
	"net/url"
)

func (t *Tracing) check(ck *checker) {
	if t.Exporter != TraceEnv {
		ck.oneOf("tracing.exporter", t.Exporter, TraceOTLP, TraceStdout, TraceFile, TraceNone)
	}
	switch {
	case t.Exporter == TraceFile && t.File == "":
		ck.add("tracing.file", "is missing", "name the file that exporter: file appends to")
	case t.Exporter != TraceFile && t.File != "":
		ck.add("tracing.file", fmt.Sprintf("is set and the exporter is %q", t.Exporter),
			"write exporter: file, or leave file out")
	case t.Exporter != TraceOTLP && t.Endpoint != "":
		ck.add("tracing.endpoint", fmt.Sprintf("is set and the exporter is %q", t.Exporter),
			"write exporter: otlp, or leave endpoint out")
	}
	if u, err := url.Parse(t.Endpoint); t.Endpoint != "" &&
		(err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
		ck.add("tracing.endpoint", "is not a URL",
			"write http://host:4317 for gRPC, http://host:4318 for http/protobuf")
	}
	ck.share("tracing.sample", t.Sample)
}
