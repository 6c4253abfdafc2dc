package systemd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// searchPath is systemd's default PATH for services.
const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// environment returns the environment of a service's commands: Environment=, then the files of EnvironmentFile= in
// order. The last value of a name wins. It is read at each start, as in systemd.
func (u *Unit) environment(root string) (map[string]string, error) {
	env := map[string]string{"PATH": searchPath, "LANG": "C.UTF-8"}
	for _, line := range u.list("Service", "Environment") {
		words, err := split(line, true)
		if err != nil {
			return nil, fmt.Errorf("unit %s: [Service] Environment=: %w", u.Name, err)
		}
		for _, word := range words {
			name, value, found := strings.Cut(word, "=")
			if !found {
				return nil, fmt.Errorf("unit %s: [Service] Environment=: %q is no NAME=value", u.Name, word)
			}
			if env[name], err = u.specifiers(value); err != nil {
				return nil, err
			}
		}
	}
	for _, file := range u.list("Service", "EnvironmentFile") {
		path, mayMiss := strings.CutPrefix(file, "-")
		if !strings.HasPrefix(path, "/") || strings.ContainsAny(path, "*?[") {
			return nil, fmt.Errorf("unit %s: [Service] EnvironmentFile=%s: not one absolute path", u.Name, file)
		}
		raw, err := os.ReadFile(filepath.Join(root, path))
		if mayMiss && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("unit %s: [Service] EnvironmentFile=: %w", u.Name, err)
		}
		if err := parseEnvironment(string(raw), env); err != nil {
			return nil, fmt.Errorf("unit %s: [Service] EnvironmentFile=%s: %w", u.Name, file, err)
		}
	}
	return env, nil
}

// parseEnvironment reads an environment file into env. A value that begins with a quote ends at the same quote; in
// any other value quotes are plain characters. A backslash at a line's end continues the line.
func parseEnvironment(text string, env map[string]string) error {
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		line := strings.TrimSpace(lines[i])
		if line == "" || line[0] == '#' || line[0] == ';' {
			continue
		}
		name, value, found := strings.Cut(line, "=")
		if !found {
			return fmt.Errorf("line %d: %q is no NAME=value", i+1, line)
		}
		for strings.HasSuffix(value, `\`) && !strings.HasSuffix(value, `\\`) && i+1 < len(lines) {
			i++
			value = strings.TrimSuffix(value, `\`) + strings.TrimRight(lines[i], " \t\r")
		}
		unquoted, err := unquote(strings.TrimSpace(value))
		if err != nil {
			return fmt.Errorf("line %d: %s: %w", i+1, name, err)
		}
		env[strings.TrimSpace(name)] = unquoted
	}
	return nil
}

func unquote(value string) (string, error) {
	var out strings.Builder
	var quote byte
	start := 0
	if value != "" && (value[0] == '"' || value[0] == '\'') {
		quote, start = value[0], 1
	}
	for i := start; i < len(value); i++ {
		switch c := value[i]; {
		case quote != 0 && c == quote:
			if i != len(value)-1 {
				return "", errors.New("text after the closing quote")
			}
			return out.String(), nil
		case c == '\\' && quote != '\'' && i+1 < len(value):
			i++
			if quote == '"' && !strings.ContainsRune("\"\\`$", rune(value[i])) {
				out.WriteByte('\\')
			}
			out.WriteByte(value[i])
		default:
			out.WriteByte(c)
		}
	}
	if quote != 0 {
		return "", errors.New("the value's quote is not closed on its line")
	}
	return out.String(), nil
}
