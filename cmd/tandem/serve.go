package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/telemetry"
	"github.com/tandem-router/tandem/orchestrator"
	"github.com/tandem-router/tandem/orchestrator/admin"
	"github.com/tandem-router/tandem/orchestrator/rpc"
)

// serveCommand runs the router, with a file that it watches, or with flags.
func serveCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "serve [FILE]", Short: "route requests over the replicas of a file or of flags",
		Args: between(0, 1, ""),
		Example: "  tandem serve --config tandem.yaml\n" +
			"  tandem serve --prefill http://p0:8000 --decode http://d0:8000 --decode http://d1:8000",
	}
	var f serveFlags
	f.add(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := f.check(args); err != nil {
			return err
		}
		return serve(c.Context(), &f, &server{stdout: c.OutOrStdout(), stderr: c.ErrOrStderr()})
	}
	return c
}

// add adds the flags to c.
func (f *serveFlags) add(c *cobra.Command) {
	fs := c.Flags()
	fs.StringVar(&f.file, "config", "",
		"configuration `file` (docs/configuration.md); it is watched and applied when it changes")
	fs.StringVar(&f.listen, "listen", "", "`address` of the public listener (default :8000, or the file's)")
	fs.StringVar(&f.admin, "admin", "",
		"`address` of the admin listener (default 127.0.0.1:9091, or the file's; off for none)")
	fs.StringVar(&f.logLevel, "log-level", "", "debug, info, warn or error")
	fs.StringArrayVar(&f.prefill, "prefill", nil, "`URL` of a prefill replica; may be repeated")
	fs.StringArrayVar(&f.decode, "decode", nil, "`URL` of a decode replica; may be repeated")
	choices(c, "log-level", "debug", "info", "warn", "error")
	files(c, "yaml", "yml")
}

// serve runs the router s with the configuration of f until ctx ends.
func serve(ctx context.Context, f *serveFlags, s *server) error {
	s.file, s.override = f.file, f.override
	if f.file == "" {
		cfg, err := fromFlags(f.listen, f.prefill, f.decode)
		if err != nil {
			return err
		}
		f.override(cfg)
		if err := cfg.Validate(); err != nil { // only the command line can be wrong
			return wrongValue("%s", err)
		}
		return s.run(ctx, cfg)
	}
	s.watch = config.NewWatcher(f.file, s.changed)
	cfg, err := config.Load(f.file)
	if err != nil {
		return err
	}
	f.override(cfg)
	if err := cfg.Validate(); err != nil { // the file is good by itself
		return wrongValue("with the flags: %s", err)
	}
	return s.run(ctx, cfg)
}

// serveFlags is the command line of serve. A flag that was not given is empty.
type serveFlags struct {
	file, listen    string
	admin, logLevel string
	prefill, decode []string
}

// check takes the file from the arguments and refuses contradictions.
func (f *serveFlags) check(args []string) (err error) {
	if f.file, err = configFile(f.file, args); err != nil {
		return err
	}
	if f.file != "" && len(f.prefill)+len(f.decode) > 0 {
		if len(args) > 0 && strings.Contains(args[0], "://") {
			return wrongUse("%s looks like an engine: write --prefill or --decode before each URL", args[0])
		}
		return wrongUse("give the replicas in the file or as flags, not both")
	}
	return nil
}

// override replaces values of the file or the defaults by given flags.
func (f *serveFlags) override(c *config.Config) {
	c.Listen = orElse(f.listen, c.Listen)
	c.Admin.Listen = orElse(f.admin, c.Admin.Listen)
	c.Log.Level = orElse(f.logLevel, c.Log.Level)
}

// fromFlags makes a configuration from the command line alone. Engines cannot be added later, so at least
// one engine must answer.
func fromFlags(listen string, prefill, decode []string) (*config.Config, error) {
	switch {
	case len(decode) == 0 && len(prefill) > 0:
		return nil, wrongUse("no decode engine: add at least one --decode URL")
	case len(decode) == 0:
		return nil, wrongUse("no engines: name a configuration file, or at least one --decode URL")
	}
	for _, urls := range [][]string{prefill, decode} {
		for _, u := range urls {
			if _, port, err := net.SplitHostPort(u); !strings.Contains(u, "://") && (err != nil || port == "") {
				return nil, wrongValue("%q is not the address of an engine: write http://host:port or host:port", u)
			}
		}
	}
	return config.FromFlags(listen, prefill, decode), nil
}

func orElse(v, d string) string {
	if v != "" {
		return v
	}
	return d
}

// server is one run of serve.
type server struct {
	file           string
	override       func(*config.Config) // values of flags, which count more than the file
	stdout, stderr io.Writer
	// Makes the server of the front listener that serves gateways; nil: the listener serves HTTP clients.
	gateway func(*orchestrator.Orchestrator) orchestrator.FrontServer
	watch   *config.Watcher // nil without a file
	o       *orchestrator.Orchestrator
	log     *slog.Logger
	level   *slog.LevelVar
}

// lastLines is how long the end of the process waits for the reader of the log, and for a disk from which a
// file is read.
const lastLines = 2 * time.Second

// run builds the router for cfg and serves until ctx ends.
func (s *server) run(ctx context.Context, cfg *config.Config) (err error) {
	lines := telemetry.NewLines(s.stderr)
	defer lines.Close(lastLines)
	if s.log, s.level, err = telemetry.NewLogger(lines, cfg.Log.Level, cfg.Log.Format); err != nil {
		return err
	}
	lines.OnResume(s.linesLost)
	metrics := telemetry.NewRegistry(version)
	metrics.MustRegister(lines.Lost())
	telemetry.LogErrors(s.log)
	t := cfg.Tracing
	spans := telemetry.TraceOptions{
		Exporter: t.Exporter, File: t.File, Endpoint: t.Endpoint, Sample: t.Sample, Version: version,
		Stdout: s.stdout,
	}
	tracing, flush, err := telemetry.SetupTracing(ctx, spans)
	if err != nil {
		return err
	}
	defer func() {
		late, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		err = errors.Join(err, flush(late))
	}()
	s.o, err = orchestrator.New(cfg, orchestrator.Options{
		Log: s.log, Tracer: tracing, Registry: metrics, Reload: s.reload, Preview: s.preview,
	})
	if err != nil {
		return err
	}
	listeners, err := s.o.Listen()
	if errors.Is(err, syscall.EADDRINUSE) { // usually an engine's address: vLLM also listens on :8000
		return fmt.Errorf("%w; name another address with --listen or --admin, or in the file", err)
	}
	if err != nil {
		return err
	}
	s.ready(listeners, spans.OnStdout())
	return s.serve(ctx, listeners)
}

// linesLost logs that the log has a gap.
func (s *server) linesLost(n int) {
	s.log.Warn("log lines were lost because standard error was not read", "lines", n)
}

// ready reports the addresses of the listeners: in a line on standard output, or in the log if spans go to
// standard output, which programs read.
func (s *server) ready(l orchestrator.Listeners, spans bool) {
	if spans {
		attrs := []any{"front", l.Front.Addr().String()}
		if l.Admin != nil {
			attrs = append(attrs, "admin", l.Admin.Addr().String())
		}
		s.log.Info("tandem serves", attrs...)
		return
	}
	line := "tandem serves on " + l.Front.Addr().String()
	if s.gateway != nil {
		line = "tandem picks on " + l.Front.Addr().String()
	}
	if l.Admin != nil {
		line += ", admin on " + l.Admin.Addr().String()
	}
	fmt.Fprintln(s.stdout, line)
}

// serve runs the listeners, the file watcher and SIGHUP at the same time until ctx ends.
func (s *server) serve(ctx context.Context, listeners orchestrator.Listeners) error {
	defer holdBallast()()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	defer waitShortly(&wg)
	defer cancel()
	wg.Go(func() { returnMemory(ctx) })
	if s.watch != nil {
		wg.Go(func() {
			if err := s.watch.Run(ctx); err != nil {
				s.log.Error(
					"the configuration file cannot be watched; reload by SIGHUP or POST /-/reload does not work either",
					"error", err,
				)
			}
		})
	}
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	wg.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-hangup:
				_ = s.o.Reload(admin.BySignal, s.reload) // which logs the error
			}
		}
	})
	remote := newRPC(s.o)
	defer remote.Stop()
	back := rpc.Handler(remote, s.o.Admin())
	if s.gateway != nil {
		return s.o.ServeBy(ctx, s.gateway(s.o), listeners, back, func(error) {})
	}
	return s.o.Serve(ctx, listeners, back)
}

// waitShortly waits for wg, unless the disk of the configuration does not answer.
func waitShortly(wg *sync.WaitGroup) {
	ended := make(chan struct{})
	go func() {
		wg.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(lastLines):
	}
}

// changed is called by the watcher with the new content of the file. If somebody asked for the reload, the
// caller writes its audit line.
func (s *server) changed(asked bool, cfg *config.Config, err error) {
	apply := func() error { return s.apply(cfg, err) }
	if asked {
		_ = apply()
		return
	}
	_ = s.o.Reload(admin.ByFile, apply)
}

// apply puts the configuration of the file in force. The orchestrator logs the error.
func (s *server) apply(cfg *config.Config, err error) error {
	if err != nil {
		s.o.Rejected(err)
		return err
	}
	s.override(cfg)
	if err := cfg.Validate(); err != nil {
		err = fmt.Errorf("with the flags: %w", err)
		s.o.Rejected(err)
		return err
	}
	if err := s.o.Apply(cfg); err != nil {
		return err
	}
	return telemetry.SetLevel(s.level, cfg.Log.Level) // validated
}

// reload reads the file now.
func (s *server) reload() error {
	if s.watch == nil {
		return admin.ErrNoReload
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err := s.watch.Reload(ctx)
	return err
}

// preview reads the file and returns what a reload would change now.
func (s *server) preview() ([]config.Change, error) {
	if s.watch == nil {
		return nil, admin.ErrNoReload
	}
	cfg, err := config.Load(s.file)
	if err != nil {
		return nil, err
	}
	s.override(cfg)
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("with the flags: %w", err)
	}
	return s.o.Changes(cfg), nil
}
