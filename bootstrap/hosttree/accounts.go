package hosttree

import (
	"bytes"
	"strconv"
	"strings"
)

// Account is a user of a host.
type Account struct {
	UID, GID int
	Home     string
}

// Accounts are the users and groups of a host, by name.
type Accounts struct {
	Users  map[string]Account
	Groups map[string]int
}

// ParseAccounts reads a host's /etc/passwd and /etc/group. As in the C library, the first of several lines with one
// name counts, and malformed lines count for nothing.
func ParseAccounts(passwd, group []byte) Accounts {
	accounts := Accounts{Users: map[string]Account{}, Groups: map[string]int{}}
	for fields := range lines(passwd, 7) {
		uid, err := strconv.ParseUint(fields[2], 10, 32)
		gid, err2 := strconv.ParseUint(fields[3], 10, 32)
		if _, exists := accounts.Users[fields[0]]; err == nil && err2 == nil && !exists {
			accounts.Users[fields[0]] = Account{UID: int(uid), GID: int(gid), Home: fields[5]}
		}
	}
	for fields := range lines(group, 4) {
		gid, err := strconv.ParseUint(fields[2], 10, 32)
		if _, exists := accounts.Groups[fields[0]]; err == nil && !exists {
			accounts.Groups[fields[0]] = int(gid)
		}
	}
	return accounts
}

// lines yields the fields of the lines that have this number of fields.
func lines(file []byte, count int) func(yield func([]string) bool) {
	return func(yield func([]string) bool) {
		for line := range bytes.Lines(file) {
			fields := strings.Split(strings.TrimRight(string(line), "\r\n"), ":")
			if len(fields) == count && fields[0] != "" && !strings.HasPrefix(fields[0], "#") && !yield(fields) {
				return
			}
		}
	}
}
