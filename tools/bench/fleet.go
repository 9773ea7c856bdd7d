package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a running program.
type process struct {
	name string
	cmd  *exec.Cmd
	log  bytes.Buffer  // its output, read after it has ended
	done chan struct{} // closed when it has ended
}

// start runs a program until stop.
func start(name, path string, args ...string) (*process, error) {
	p := &process{name: name, cmd: exec.Command(path, args...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	go func() { defer close(p.done); _ = p.cmd.Wait() }() // its log says why it ended
	return p, nil
}

// stop asks the program to end, and kills it after five seconds. It returns the end of its output.
func (p *process) stop() string {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // fails if it has just ended
	select {
	case <-p.done:
	case <-time.After(5 * time.Second):
		_ = p.cmd.Process.Kill() // fails if it has just ended
		<-p.done
	}
	said := p.log.String()
	return said[max(0, len(said)-2000):]
}

// ended reports whether the program has ended by itself.
func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// cpu is the processor time the program has used, from /proc in steps of 10 ms.
func (p *process) cpu() (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	// The second field is the name in parentheses and may hold anything.
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(fields) < 13 {
		return 0, errors.New("/proc stat is short")
	}
	user, err1 := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	const tick = 10 * time.Millisecond // USER_HZ is 100 on every Linux Go runs on
	return time.Duration(user+system) * tick, errors.Join(err1, err2)
}

// rss is the program's resident memory in MiB.
func (p *process) rss() (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseFloat(strings.Fields(v)[0], 64)
			return kib / 1024, err
		}
	}
	return 0, errors.New("/proc status has no VmRSS")
}

// freeAddr finds a loopback address with a free port.
func freeAddr() (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer ln.Close()
	return ln.Addr().String(), nil
}

// freePorts finds n consecutive free ports and returns the first. Another program may still take one.
func freePorts(n int) (int, error) {
	for first := 20000; first+n < 32000; first += n {
		if rowIsFree(first, n) {
			return first, nil
		}
	}
	return 0, fmt.Errorf("no %d free ports in a row", n)
}

func rowIsFree(first, n int) bool {
	for i := range n {
		ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", first+i))
		if err != nil {
			return false
		}
		ln.Close()
	}
	return true
}

// fleet is a set of engines and the fronts that use them.
type fleet struct {
	all       []*process
	prefill   []string // addresses
	decode    []string
	tandem    *process
	admin     string // its admin address
	front     string // its address
	reference *process
	refAddr   string
	peer      *process
	peerAddr  string
}

func (f *fleet) start(name, path string, args ...string) (*process, error) {
	p, err := start(name, path, args...)
	if err == nil {
		f.all = append(f.all, p)
	}
	return p, err
}

// stop ends the fleet, fronts first.
func (f *fleet) stop() {
	for i := range f.all {
		f.all[len(f.all)-1-i].stop()
	}
}

// engines starts n engines and returns when each answers. Their ports are consecutive, so that one process
// can serve all.
func (f *fleet) engines(ctx context.Context, o options, n int) ([]string, error) {
	first, err := freePorts(n)
	if err != nil {
		return nil, err
	}
	addrs := make([]string, n)
	for i := range addrs {
		addrs[i] = fmt.Sprintf("127.0.0.1:%d", first+i)
	}
	if err := f.startEngines(o, addrs); err != nil {
		return nil, err
	}
	for _, addr := range addrs {
		if err := f.await(ctx, "http://"+addr+"/health", 30*time.Second); err != nil {
			return nil, err
		}
	}
	return addrs, nil
}

// startEngines starts one process per engine, or one process for many engines.
func (f *fleet) startEngines(o options, addrs []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if o.upstream == binarySim {
		return f.startSims(o, addrs)
	}
	const many = 8
	step := 1
	if len(addrs) > many {
		step = len(addrs)
	}
	for i := 0; i < len(addrs); i += step {
		if _, err := f.start("engine "+addrs[i], self, "engines", "--kind", o.upstream, "--listen", addrs[i],
			"--count", strconv.Itoa(step)); err != nil {
			return err
		}
	}
	return nil
}

// binarySim is the kind of engine that runs `tandem sim` of the tested binary.
const binarySim = "tandem sim"

func (f *fleet) startSims(o options, addrs []string) error {
	for _, addr := range addrs {
		args := []string{
			"sim", "--model", model, "--blocks", "32768", "--listen", addr, "--events", "tcp://127.0.0.1:0",
		}
		if !o.timed {
			args = append(args, "--zero-latency")
		}
		if _, err := f.start("engine "+addr, o.tandem, args...); err != nil {
			return err
		}
	}
	return nil
}

// split makes the first half of the engines prefill.
func (f *fleet) split(engines []string) {
	f.prefill, f.decode = engines[:len(engines)/2], engines[len(engines)/2:]
}

// serve starts tandem for the engines and returns when it is ready. The first half of the engines prefill.
func (f *fleet) serve(ctx context.Context, o options, engines []string) (err error) {
	f.split(engines)
	if f.front, err = freeAddr(); err != nil {
		return err
	}
	if f.admin, err = freeAddr(); err != nil {
		return err
	}
	file, err := f.config(o)
	if err != nil {
		return err
	}
	defer os.Remove(file)
	if f.tandem, err = f.start("tandem", o.tandem, "serve", "--config", file, "--listen", f.front, "--admin",
		f.admin); err != nil {
		return err
	}
	return f.awaitAnswer(ctx, f.front)
}

// config writes tandem's configuration: everything but local is the default.
func (f *fleet) config(o options) (string, error) {
	text := fmt.Sprintf("local: %s\npools:\n  prefill:\n    replicas:%s\n  decode:\n    replicas:%s\n",
		o.local, items(f.prefill), items(f.decode)) + o.config
	file, err := os.CreateTemp("", "tandem-bench-*.yaml")
	if err != nil {
		return "", err
	}
	_, err = file.WriteString(text)
	return file.Name(), errors.Join(err, file.Close())
}

func items(addrs []string) string {
	var b strings.Builder
	for _, addr := range addrs {
		fmt.Fprintf(&b, "\n      - http://%s", addr)
	}
	return b.String()
}

// serveReference starts the plain front for the same engines, with these extra flags.
func (f *fleet) serveReference(ctx context.Context, flags ...string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if f.refAddr, err = freeAddr(); err != nil {
		return err
	}
	args := slices.Concat([]string{"reference", "--listen", f.refAddr}, flags, f.pools())
	if f.reference, err = f.start("reference", self, args...); err != nil {
		return err
	}
	return f.awaitAnswer(ctx, f.refAddr)
}

// pools returns the engines as flags of the reference.
func (f *fleet) pools() (args []string) {
	for _, addr := range f.prefill {
		args = append(args, "--prefill", "http://"+addr)
	}
	for _, addr := range f.decode {
		args = append(args, "--decode", "http://"+addr)
	}
	return args
}

// await requests url until the status is 200.
func (f *fleet) await(ctx context.Context, url string, limit time.Duration) error {
	return f.until(ctx, limit, url, func() error {
		resp, err := http.Get(url)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body) // the status is what counts
		if resp.StatusCode != http.StatusOK {
			return errors.New(resp.Status)
		}
		return nil
	})
}

// awaitAnswer sends completions to addr until one is answered.
func (f *fleet) awaitAnswer(ctx context.Context, addr string) error {
	return f.until(ctx, time.Minute, addr, func() error {
		c, err := dial(addr)
		if err != nil {
			return err
		}
		defer c.close()
		_, err = c.do(completion(addr, 0, 2, false))
		return err
	})
}

func (f *fleet) until(ctx context.Context, limit time.Duration, what string, try func() error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		err := try()
		if err == nil {
			return nil
		}
		for _, p := range f.all {
			if p.ended() {
				return fmt.Errorf("%s ended: %s", p.name, p.stop())
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer: %w", what, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
