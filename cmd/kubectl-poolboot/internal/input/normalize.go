package input

import (
	"bytes"
	"encoding/binary"
	"errors"
	"unicode/utf16"
)

// Marks at the beginning of a file.
var (
	utf8Mark        = []byte{0xef, 0xbb, 0xbf}
	littleEndian    = []byte{0xff, 0xfe}
	bigEndian       = []byte{0xfe, 0xff}
	gzipMark        = []byte{0x1f, 0x8b}
	errIsCompressed = errors.New("is compressed with gzip: decompress it, for example with gunzip")
)

// Normalize returns a text in UTF-8 with line feeds only, one of them at its end. On Windows, editors write byte order
// marks and carriage returns, and PowerShell writes the output of a command as UTF-16.
func Normalize(text []byte) ([]byte, error) {
	switch {
	case bytes.HasPrefix(text, gzipMark):
		return nil, errIsCompressed
	case bytes.HasPrefix(text, littleEndian):
		text = decodeUTF16(text[len(littleEndian):], binary.LittleEndian)
	case bytes.HasPrefix(text, bigEndian):
		text = decodeUTF16(text[len(bigEndian):], binary.BigEndian)
	}
	text = bytes.ReplaceAll(bytes.TrimPrefix(text, utf8Mark), []byte("\r\n"), []byte("\n"))
	if len(text) > 0 && text[len(text)-1] != '\n' {
		text = append(text, '\n') // as the reader of documents does
	}
	return text, nil
}

func decodeUTF16(text []byte, order binary.ByteOrder) []byte {
	units := make([]uint16, len(text)/2)
	for i := range units {
		units[i] = order.Uint16(text[2*i:])
	}
	return []byte(string(utf16.Decode(units)))
}
