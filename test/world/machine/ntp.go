package machine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"time"
)

// ServeNTP serves the right time by NTP at Address until the returned function is called. It requires root.
func ServeNTP() (stop func() error, _ error) {
	connection, err := net.ListenPacket("udp4", net.JoinHostPort(Address, "123"))
	if err != nil {
		return nil, fmt.Errorf("serve the time: %w", err)
	}
	done := make(chan error, 1)
	go func() { done <- answerNTP(connection) }()
	return func() error { return errors.Join(connection.Close(), <-done) }, nil
}

// answerNTP answers until the connection is closed. RFC 5905 describes the packets.
func answerNTP(connection net.PacketConn) error {
	request := make([]byte, 1024)
	for {
		n, client, err := connection.ReadFrom(request)
		if errors.Is(err, net.ErrClosed) {
			return nil
		} else if err != nil {
			return err
		}
		if n < 48 {
			continue
		}
		now := time.Now()
		answer := make([]byte, 48)
		answer[0] = 4<<3 | 4                  // version 4, server
		answer[1] = 1                         // the stratum of a server with a clock of its own
		answer[3] = 0xec                      // the precision: 2^-20 s
		copy(answer[12:], "LOCL")             // the clock
		copy(answer[24:32], request[40:48])   // the time at which the client sent its request
		putNTPTime(answer[16:24], now)        // the time at which the clock was last set
		putNTPTime(answer[32:40], now)        // the time at which the request was received
		putNTPTime(answer[40:48], time.Now()) // the time at which the answer is sent
		if _, err := connection.WriteTo(answer, client); err != nil && !errors.Is(err, net.ErrClosed) {
			return err
		}
	}
}

// putNTPTime writes the seconds since 1900 and their fraction.
func putNTPTime(field []byte, t time.Time) {
	const from1900To1970 = 2208988800
	binary.BigEndian.PutUint32(field, uint32(t.Unix()+from1900To1970))
	binary.BigEndian.PutUint32(field[4:], uint32(uint64(t.Nanosecond())<<32/uint64(time.Second)))
}
