package secrecy

import (
	"encoding/base64"
	"encoding/binary"
	"strings"
)

// needle is a form in which a secret may be written.
type needle struct{ text, what string }

// needles find any of many secrets in one pass over a text, by the first eight bytes of each.
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

// add leaves out what is too short to be anything.
func (n needles) add(text, what string) {
	if len(text) >= 10 {
		n[start(text)] = append(n[start(text)], needle{text, what})
	}
}

// in returns where secrets are in a text: the line around the first place of each, by what it is.
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

// inBase64 is what is the same in the base64 of every text that has a secret at offset modulo three.
func inBase64(encoding *base64.Encoding, secret string, offset int) string {
	encoded := encoding.EncodeToString([]byte(strings.Repeat("\x00", offset) + secret))
	first, last := []int{0, 2, 3}[offset], len(strings.TrimRight(encoded, "="))
	if (offset+len(secret))%3 != 0 {
		last--
	}
	return encoded[min(first, last):last]
}
