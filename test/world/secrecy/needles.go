package secrecy

import (
	"encoding/base64"
	"encoding/binary"
	"strings"
)

// needle is an encoding of a secret.
type needle struct{ text, what string }

// needles find many secrets in one pass over a text, by the first eight bytes of each secret.
type needles map[uint64][]needle

func newNeedles(secrets ...map[string]string) needles {
	n := needles{}
	for _, of := range secrets {
		for secret, what := range of {
			for line := range strings.SplitSeq(secret, "\n") {
				n.add(line, what)
				for offset := range 3 {
					n.add(inBase64(base64.StdEncoding, line, offset), what+" in base64")
					n.add(inBase64(base64.URLEncoding, line, offset), what+" in base64")
				}
			}
		}
	}
	return n
}

// add ignores texts that are too short to identify a secret.
func (n needles) add(text, what string) {
	if len(text) >= 10 {
		n[start(text)] = append(n[start(text)], needle{text, what})
	}
}

// in finds secrets in a text. It returns the text around the first occurrence of each, by the secret's description.
func (n needles) in(text string) map[string]string {
	found := map[string]string{}
	for i := 0; i+8 <= len(text); i++ {
		for _, candidate := range n[start(text[i:])] {
			if _, known := found[candidate.what]; !known && strings.HasPrefix(text[i:], candidate.text) {
				found[candidate.what] = text[max(0, i-200):min(len(text), i+len(candidate.text)+50)]
			}
		}
	}
	return found
}

func start(text string) uint64 { return binary.LittleEndian.Uint64([]byte(text[:8])) }

// inBase64 returns the common part of the base64 encodings of all texts that have a secret at offset modulo three.
func inBase64(encoding *base64.Encoding, secret string, offset int) string {
	encoded := encoding.EncodeToString([]byte(strings.Repeat("\x00", offset) + secret))
	first, last := []int{0, 2, 3}[offset], len(strings.TrimRight(encoded, "="))
	if (offset+len(secret))%3 != 0 {
		last--
	}
	return encoded[min(first, last):last]
}
