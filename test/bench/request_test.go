package bench

import (
	"bytes"
	"io"
	"net"
	"testing"
)

// BenchmarkRequest sends requests to a config server in its own process on one connection without TLS. It measures the
// processor time and memory of a request, including net/http and the kernel. A pool's configuration has 400 KiB before
// compression. 503 is the answer to a host of an unknown Machine.
func BenchmarkRequest(b *testing.B) {
	s := startServer(b, 1, 400<<10)
	for _, what := range []struct{ name, path, status string }{
		{"rendered", s.Rendered, "200"},
		{"config", configPath("0"), "200"},
		{"503", configPath(unknownMachine), "503"},
	} {
		b.Run(what.name, func(b *testing.B) {
			host, err := net.Dial("tcp", s.Plain)
			if err != nil {
				b.Fatal(err)
			}
			defer host.Close()
			request := []byte("GET " + what.path + " HTTP/1.1\r\nHost: a\r\nUser-Agent: Ignition/2.27.0\r\n" +
				"Accept: application/vnd.coreos.ignition+json;version=3.6.0, */*;q=0.1\r\nAccept-Encoding: identity\r\n" +
				"Authorization: Bearer " + benchToken + "\r\n\r\n")
			answer, size := make([]byte, 1<<20), 0
			before := s.readUsage(b)
			for b.Loop() {
				if _, err := host.Write(request); err != nil {
					b.Fatal(err)
				}
				n, err := io.ReadAtLeast(host, answer, max(size, 1))
				if err != nil {
					b.Fatal(err)
				}
				for size == 0 { // the first answer has the length of all
					head, body, _ := bytes.Cut(answer[:n], []byte("\r\n\r\n"))
					if !bytes.HasPrefix(head, []byte("HTTP/1.1 "+what.status)) {
						b.Fatalf("%s", head)
					}
					length := parseContentLength(b, head)
					if _, err := io.ReadFull(host, answer[n:n+length-len(body)]); err != nil {
						b.Fatal(err)
					}
					size = len(head) + 4 + length
				}
			}
			after := s.readUsage(b)
			b.ReportMetric(float64((after.Processor-before.Processor).Microseconds())/float64(b.N), "cpu-µs/request")
			b.ReportMetric(float64(after.Allocations-before.Allocations)/float64(b.N), "server-allocs/request")
			b.ReportMetric(float64(size), "bytes/answer")
		})
	}
}

// parseContentLength returns the content length in an answer's header.
func parseContentLength(b *testing.B, head []byte) int {
	_, value, _ := bytes.Cut(head, []byte("Content-Length: "))
	length := 0
	for _, digit := range value {
		if digit < '0' || digit > '9' {
			break
		}
		length = 10*length + int(digit-'0')
	}
	if length == 0 {
		b.Fatalf("no length in %s", head)
	}
	return length
}
