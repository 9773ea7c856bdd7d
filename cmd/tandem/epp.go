package main

import (
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/orchestrator"
	"github.com/tandem-router/tandem/orchestrator/picker"
)

// eppCommand runs the router as an endpoint picker of a gateway.
func eppCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "epp [FILE]", Short: "pick endpoints for a gateway (experimental)",
		Long: "Picks a decode and a prefill replica for each request of a gateway: the Gateway API Inference " +
			"Extension's endpoint picker\n(protocol 1.0, Envoy's external processing). The gateway sends the " +
			"request, and llm-d's routing sidecar splits it.\nExperimental: docs/gateway.md says what is lost " +
			"against tandem serve.",
		Args: between(0, 1, ""),
		Example: "  tandem epp --config tandem.yaml --listen :9002 --sidecar-port 8000\n" +
			"  tandem epp --prefill http://10.0.0.1:8000 --decode http://10.0.0.2:8200 --sidecar-port 8000",
	}
	var f serveFlags
	f.add(c)
	sidecar := 0
	c.Flags().IntVar(&sidecar, "sidecar-port", 0,
		"`port` of the routing sidecar beside each decode engine, which gets the requests (default: the "+
			"engine's own)")
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := f.check(args); err != nil {
			return err
		}
		if sidecar < 0 || sidecar > 65535 {
			return wrongValue("--sidecar-port %d is no port: want 1 to 65535, or 0 for the engine's own", sidecar)
		}
		s := &server{stdout: c.OutOrStdout(), stderr: c.ErrOrStderr()}
		s.gateway = func(o *orchestrator.Orchestrator) orchestrator.FrontServer {
			warnOfNames(o.Config(), s.log)
			return newPicker(o, sidecar)
		}
		return serve(c.Context(), &f, s)
	}
	return c
}

// warnOfNames logs each decode replica of the file to which no gateway can send requests.
func warnOfNames(c *config.Config, log *slog.Logger) {
	for _, r := range c.Pools.Decode.Replicas {
		if u, err := url.Parse(r.URL); err == nil && net.ParseIP(u.Hostname()) == nil {
			log.Warn("a decode replica gets no requests, since gateways need IP addresses: write the IP into "+
				"pools.decode.replicas, or let discovery find the replica", "url", r.URL)
		}
	}
}

// newPicker serves gateways over o.
func newPicker(o *orchestrator.Orchestrator, sidecarPort int) picker.Server {
	pick := o.Picker()
	return picker.New(picker.Options{
		Pick:  func(w http.ResponseWriter, r *http.Request, x *picker.Exchange) { pick(w, r, x) },
		Ready: o.Ready, Panicked: o.Panicked, SidecarPort: sidecarPort,
		MaxRequest:   int(o.Config().Limits.BodyBytes),
		WriteTimeout: func() time.Duration { return o.Config().Timeouts.ClientWrite },
	})
}
