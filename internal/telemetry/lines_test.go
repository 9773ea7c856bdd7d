package telemetry

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// slowReader takes nothing until it is let, and then remembers all.
type slowReader struct {
	let   chan struct{}
	bytes bytes.Buffer
}

func (r *slowReader) Write(p []byte) (int, error) {
	<-r.let
	return r.bytes.Write(p)
}

// Lines come in their order and whole, from several goroutines.
func TestLinesInOrder(t *testing.T) {
	var out bytes.Buffer
	l := NewLines(&out)
	var writers sync.WaitGroup
	for who := range 4 {
		writers.Go(func() {
			for i := range 1000 {
				fmt.Fprintf(l, "%d %d %s\n", who, i, strings.Repeat("x", i%300))
			}
		})
	}
	writers.Wait()
	if !l.Close(10 * time.Second) {
		t.Error("not all was passed on")
	}
	next := map[int]int{}
	for line := range strings.Lines(out.String()) {
		var who, i int
		if _, err := fmt.Sscan(line, &who, &i); err != nil || next[who] != i {
			t.Fatalf("line %q where %d of %d is due: %v", line, next[who], who, err)
		}
		next[who]++
	}
	for who := range 4 {
		if next[who] != 1000 {
			t.Errorf("%d lines of %d", next[who], who)
		}
	}
}

// While nobody reads, no writer waits; what there is no room for is counted, and said in one line when
// somebody reads again. The end waits for a bounded time.
func TestLinesThatNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &slowReader{let: make(chan struct{})}
		l := NewLines(out)
		l.OnResume(func(lost int) { fmt.Fprintf(l, "%d lost\n", lost) })
		const size, written = 1000, 5000 // bytes of a line, lines
		began := time.Now()
		for i := range written {
			fmt.Fprintf(l, "%0*d\n", size-1, i)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("writers waited for %v", took)
		}
		lost := int(l.total.Load())
		if most := 2 * mostWaiting / size; lost < written-most || lost >= written {
			t.Errorf("%d of %d lines are lost", lost, written)
		}
		if l.Close(2 * time.Second); time.Since(began) != 2*time.Second {
			t.Errorf("the end waited for %v", time.Since(began))
		}
		close(out.let)
		<-l.ended
		lines := strings.Split(strings.TrimSpace(out.bytes.String()), "\n")
		if last := lines[len(lines)-1]; last != fmt.Sprintf("%d lost", lost) || len(lines) != written-lost+1 {
			t.Errorf("%d lines, the last %q; %d were lost", len(lines), last, lost)
		}
		for i, line := range lines[:len(lines)-1] {
			if strings.TrimLeft(line, "0") != strings.TrimLeft(fmt.Sprint(i), "0") {
				t.Fatalf("line %d is %.40q", i, line)
			}
		}
	})
}

// A logger on a pipe that is full goes on, on a real one.
func TestLoggerOnAFullPipe(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	l := NewLines(w)
	log, _, err := NewLogger(l, "info", "text")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20_000 { // 2 MB: more than the pipe and the buffer take
		log.Info("a request ended", "number", i, "filler", strings.Repeat("x", 40))
	}
	if l.Close(0) {
		t.Error("all was passed on to nobody")
	}
	read := make(chan int, 1)
	go func() {
		text, _ := io.ReadAll(r)
		read <- bytes.Count(text, []byte("\n"))
	}()
	<-l.ended
	w.Close()
	if n, lost := <-read, int(l.total.Load()); n+lost != 20_000 || lost == 0 {
		t.Errorf("%d lines were read and %d are lost of 20000", n, lost)
	}
}
