package server_test

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/server"
)

// wiretap keeps the first record of each direction: the hellos of a handshake, which are not encrypted.
type wiretap struct {
	net.Conn
	sent, received []byte
}

func (w *wiretap) Write(p []byte) (int, error) {
	if len(w.sent) == 0 {
		w.sent = bytes.Clone(p)
	}
	return w.Conn.Write(p)
}

func (w *wiretap) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if len(w.received) < 64 {
		w.received = append(w.received, p[:n]...)
	}
	return n, err
}

// expand returns the first bytes of the pseudorandom function of TLS 1.2 (RFC 5246, section 5).
func expand(secret []byte, label string, seed []byte, length int) (out []byte) {
	sum := func(parts ...[]byte) []byte {
		mac := hmac.New(sha256.New, secret)
		mac.Write(bytes.Join(parts, nil))
		return mac.Sum(nil)
	}
	seed = append([]byte(label), seed...)
	for a := sum(seed); len(out) < length; a = sum(a) {
		out = append(out, sum(a, seed)...)
	}
	return out[:length]
}

var _ = Describe("TLS", func() {
	var s *site
	var settings *tls.Config
	BeforeEach(func() {
		s, _ = attacked(server.DefaultLimits)
		settings = s.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	})
	dial := func() error {
		conn, err := tls.Dial("tcp", s.Listener.Addr().String(), settings)
		if err == nil {
			err = conn.Close()
		}
		return err
	}

	DescribeTable("accepts only safe versions, ciphers and protocols", func(change func(), refused string) {
		change()
		if refused == "" {
			Expect(dial()).To(Succeed())
		} else {
			Expect(dial()).To(MatchError(ContainSubstring(refused)))
		}
	},
		Entry("1.3", func() { settings.MinVersion = tls.VersionTLS13 }, ""),
		Entry("1.2", func() { settings.MaxVersion = tls.VersionTLS12 }, ""),
		Entry("1.1", func() { settings.MinVersion, settings.MaxVersion = tls.VersionTLS10, tls.VersionTLS11 }, "protocol version"),
		Entry("1.0", func() { settings.MinVersion, settings.MaxVersion = tls.VersionTLS10, tls.VersionTLS10 }, "protocol version"),
		Entry("keys without forward secrecy", func() {
			settings.MaxVersion, settings.CipherSuites = tls.VersionTLS12, []uint16{tls.TLS_RSA_WITH_AES_128_GCM_SHA256}
		}, "handshake failure"),
		Entry("a broken cipher", func() {
			settings.MaxVersion, settings.CipherSuites = tls.VersionTLS12, []uint16{tls.TLS_ECDHE_RSA_WITH_RC4_128_SHA, tls.TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA}
		}, "handshake failure"),
		Entry("HTTP/2, whose streams allow unlimited requests on one connection", func() { settings.NextProtos = []string{"h2"} }, "no application protocol"),
		Entry("HTTP/1.1 if both are offered", func() { settings.NextProtos = []string{"h2", "http/1.1"} }, ""),
	)

	It("handles the preface of HTTP/2 as a request in HTTP/1.1", func() {
		code, _, _ := s.exchange("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
		Expect(code).To(Equal(http.StatusNotFound))
	})

	// Go's client cannot start a renegotiation, so the test builds its next record from the secrets of its session.
	It("is never renegotiated", func() {
		raw, err := net.Dial("tcp", s.Listener.Addr().String())
		Expect(err).NotTo(HaveOccurred())
		tap, secrets := &wiretap{Conn: raw}, &strings.Builder{}
		settings.ServerName, settings.MaxVersion, settings.KeyLogWriter = "127.0.0.1", tls.VersionTLS12, secrets
		settings.CipherSuites = []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}
		conn := tls.Client(tap, settings)
		defer conn.Close()
		Expect(conn.SetDeadline(time.Now().Add(10 * time.Second))).To(Succeed())
		Expect(conn.Handshake()).To(Succeed())

		var clientRandom, master string
		_, err = fmt.Sscanf(secrets.String(), "CLIENT_RANDOM %s %s", &clientRandom, &master)
		Expect(err).NotTo(HaveOccurred())
		fromClient, err := hex.DecodeString(clientRandom)
		Expect(err).NotTo(HaveOccurred())
		secret, err := hex.DecodeString(master)
		Expect(err).NotTo(HaveOccurred())
		fromServer := tap.received[11:43] // after the headers of the record and of the message, and the version
		keys := expand(secret, "key expansion", append(bytes.Clone(fromServer), fromClient...), 40)
		block, err := aes.NewCipher(keys[:16])
		Expect(err).NotTo(HaveOccurred())
		sealer, err := cipher.NewGCM(block)
		Expect(err).NotTo(HaveOccurred())

		hello := tap.sent[5:]
		sequence := binary.BigEndian.AppendUint64(nil, 1) // 0 was the Finished message
		header := append(bytes.Clone(sequence), 22, 3, 3)
		sealed := sealer.Seal(bytes.Clone(sequence), append(bytes.Clone(keys[32:36]), sequence...), hello, binary.BigEndian.AppendUint16(header, uint16(len(hello))))
		_, err = raw.Write(append(binary.BigEndian.AppendUint16([]byte{22, 3, 3}, uint16(len(sealed))), sealed...))
		Expect(err).NotTo(HaveOccurred())
		_, err = conn.Read(make([]byte, 1))
		Expect(err).To(MatchError("remote error: tls: unexpected message"), "and not a bad record: the server could read it")
	})
})
