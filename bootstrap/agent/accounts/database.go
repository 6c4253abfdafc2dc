package accounts

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
)

// user is a user of a host.
type user struct {
	UID      int      `json:"uid"`
	GID      int      `json:"gid"`
	Gecos    string   `json:"gecos,omitempty"`
	Home     string   `json:"home,omitempty"`
	Shell    string   `json:"shell,omitempty"`
	Password string   `json:"password,omitempty"` // the hash
	Groups   []string `json:"groups,omitempty"`   // the supplementary ones, in order
}

// group is a group of a host.
type group struct {
	GID      int    `json:"gid"`
	Password string `json:"password,omitempty"` // the hash
}

// imageEtc is where hosts keep the /etc of their image.
const imageEtc = "/usr/etc"

// userIn returns a user from the files of a directory, nil if it does not exist.
func (e Executor) userIn(etc, name string) (*user, error) {
	fields, err := e.fields(etc+"/passwd", name, 7)
	if err != nil || fields == nil {
		return nil, err
	}
	u := &user{Gecos: fields[4], Home: fields[5], Shell: fields[6]}
	if u.UID, err = strconv.Atoi(fields[2]); err != nil {
		return nil, errors.New(etc + "/passwd has an invalid user ID: correct the line")
	}
	if u.GID, err = strconv.Atoi(fields[3]); err != nil {
		return nil, errors.New(etc + "/passwd has an invalid group ID: correct the line")
	}
	shadow, err := e.fields(etc+"/shadow", name, 2)
	if err != nil {
		return nil, err
	}
	switch u.Password = fields[1]; {
	case shadow != nil:
		u.Password = shadow[1]
	case u.Password == "x": // never an empty one, with which everybody can log in
		u.Password = noPassword
	}
	groups, err := e.read(etc + "/group")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(groups) {
		fields := strings.Split(strings.TrimRight(line, "\r\n"), ":")
		if len(fields) == 4 && slices.Contains(strings.Split(fields[3], ","), name) {
			u.Groups = append(u.Groups, fields[0])
		}
	}
	u.Groups = sorted(u.Groups)
	return u, nil
}

// groupIn returns a group from the files of a directory, nil if it does not exist.
func (e Executor) groupIn(etc, name string) (*group, error) {
	fields, err := e.fields(etc+"/group", name, 4)
	if err != nil || fields == nil {
		return nil, err
	}
	g := &group{}
	if g.GID, err = strconv.Atoi(fields[2]); err != nil {
		return nil, errors.New(etc + "/group has an invalid group ID: correct the line")
	}
	shadow, err := e.fields(etc+"/gshadow", name, 2)
	if err != nil {
		return nil, err
	}
	if shadow != nil {
		g.Password = shadow[1]
	}
	return g, nil
}

// isTaken reports whether a user or group of a file has an ID.
func (e Executor) isTaken(file string, id int) (bool, error) {
	text, err := e.read(file)
	for line := range strings.Lines(text) {
		if fields := strings.Split(line, ":"); len(fields) > 2 && fields[2] == strconv.Itoa(id) {
			return true, nil
		}
	}
	return false, err
}

func (e Executor) user(name string) (*user, error)   { return e.userIn("/etc", name) }
func (e Executor) group(name string) (*group, error) { return e.groupIn("/etc", name) }

// hasImage reports whether the host has the users and groups of its image. On OSTree hosts, other ones are in /usr/lib,
// where programs do not change them.
func (e Executor) hasImage() bool {
	_, err := os.Stat(e.path(imageEtc + "/passwd"))
	return err == nil
}

// fields returns the fields of the first line of a name, nil if there is none with at least this number of fields.
func (e Executor) fields(file, name string, count int) ([]string, error) {
	text, err := e.read(file)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(text) {
		fields := strings.Split(strings.TrimRight(line, "\r\n"), ":")
		if fields[0] == name && len(fields) >= count {
			return fields, nil
		}
	}
	return nil, nil
}

// read returns a file, and nothing if it does not exist.
func (e Executor) read(file string) (string, error) {
	text, err := os.ReadFile(e.path(file))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return string(text), err
}
