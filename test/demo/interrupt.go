package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// untilInterrupted returns a context that ends when this program, or the make that runs it, gets SIGINT or SIGTERM.
//
// GNU make hands SIGTERM on. A SIGINT it takes for one from the terminal, which goes to the whole process group: it
// hands nothing on and waits for what it runs. So a SIGINT to make alone, as by kill, would never get here.
func untilInterrupted(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithCancel(ctx) // without stop: a second signal must not end the cleanup
	if parent := os.Getppid(); isMake(parent) && catches(parent, syscall.SIGINT) {
		go func() {
			defer cancel()
			ticker := time.NewTicker(200 * time.Millisecond)
			defer ticker.Stop()
			for catches(parent, syscall.SIGINT) {
				select {
				case <-ctx.Done():
					return
				case <-ticker.C:
				}
			}
		}()
	}
	return ctx, func() { cancel(); stop() }
}

func isMake(pid int) bool {
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return err == nil && strings.HasSuffix(strings.TrimSpace(string(name)), "make")
}

// catches says whether a process has a handler for a signal. Make takes its own away once it has got one.
func catches(pid int, caught syscall.Signal) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return false
	}
	_, mask, _ := strings.Cut(string(status), "SigCgt:")
	mask, _, _ = strings.Cut(mask, "\n")
	signals, err := strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
	return err == nil && signals&(1<<(caught-1)) != 0
}
