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
// GNU make forwards SIGTERM. It does not forward SIGINT, because a SIGINT from the terminal goes to the whole process
// group, and waits for the program that it runs. So a SIGINT to make alone, for example from kill, would never arrive.
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

// catches reports whether a process has a handler for a signal. Make removes its handler when it receives the signal.
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
