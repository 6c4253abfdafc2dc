package systemd

import (
	"fmt"
	"strings"
)

// command is an Exec…= line.
type command struct {
	// words have unexpanded variables.
	words []string
	// mayFail is set by the prefix "-".
	mayFail bool
}

// parseCommand splits an Exec…= line into words.
func (u *Unit) parseCommand(setting, line string) (command, error) {
	var parsed command
	line, parsed.mayFail = strings.CutPrefix(line, "-")
	words, err := split(line, true)
	if err != nil {
		return parsed, fmt.Errorf("unit %s: [Service] %s=%s: %w", u.Name, setting, line, err)
	}
	if len(words) == 0 || !strings.HasPrefix(words[0], "/") {
		return parsed, fmt.Errorf("unit %s: [Service] %s=%s: not an absolute path to a program", u.Name, setting, line)
	}
	for i, word := range words {
		if words[i], err = u.specifiers(word); err != nil {
			return parsed, err
		}
	}
	parsed.words = words
	return parsed, nil
}

// specifiers replaces %n, %N, %p and %%.
func (u *Unit) specifiers(text string) (string, error) {
	bare := strings.TrimSuffix(u.Name, "."+kind(u.Name))
	var out strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] != '%' {
			out.WriteByte(text[i])
			continue
		}
		i++
		switch {
		case i == len(text):
			out.WriteByte('%')
		case text[i] == '%':
			out.WriteByte('%')
		case text[i] == 'n':
			out.WriteString(u.Name)
		case text[i] == 'N', text[i] == 'p':
			out.WriteString(bare)
		default:
			return "", fmt.Errorf("unit %s: specifier %%%c is not understood", u.Name, text[i])
		}
	}
	return out.String(), nil
}

// expand replaces the variables in a command's words: a word $NAME becomes the words of its value, ${NAME} is replaced
// at any position, $$ is a dollar sign. Quotes around a variable change nothing, as in systemd.
func expand(words []string, env map[string]string) ([]string, error) {
	var out []string
	for _, word := range words {
		if len(word) > 1 && word[0] == '$' && word[1] != '{' && word[1] != '$' {
			values, err := split(env[word[1:]], false)
			if err != nil {
				return nil, fmt.Errorf("variable %s: %w", word, err)
			}
			out = append(out, values...)
			continue
		}
		replaced, err := replace(word, env)
		if err != nil {
			return nil, err
		}
		out = append(out, replaced)
	}
	return out, nil
}

func replace(word string, env map[string]string) (string, error) {
	var out strings.Builder
	for i := 0; i < len(word); i++ {
		rest := word[i:]
		switch {
		case strings.HasPrefix(rest, "$$"):
			out.WriteByte('$')
			i++
		case strings.HasPrefix(rest, "${"):
			name, _, closed := strings.Cut(rest[2:], "}")
			if !closed || strings.ContainsAny(name, ":-+") {
				return "", fmt.Errorf("%q: variable without an end or with a default is not understood", word)
			}
			out.WriteString(env[name])
			i += len(name) + 2
		default:
			out.WriteByte(word[i])
		}
	}
	return out.String(), nil
}

// cEscapes are the letters that represent another character after a backslash.
var cEscapes = map[byte]byte{'a': 7, 'b': 8, 'f': 12, 'n': '\n', 'r': '\r', 't': '\t', 'v': 11, 's': ' ',
	'\\': '\\', '"': '"', '\'': '\''}

// split splits text into words at white space outside quotes. With cStyle a backslash starts a C escape, otherwise it
// quotes the next character.
func split(text string, cStyle bool) ([]string, error) {
	var (
		words  []string
		word   strings.Builder
		inWord bool
		quote  byte
	)
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '\\':
			if i++; i == len(text) {
				return nil, fmt.Errorf("a backslash ends %q", text)
			}
			plain := text[i]
			if cStyle {
				var known bool
				if plain, known = cEscapes[text[i]]; !known {
					return nil, fmt.Errorf("escape \\%c is not understood in %q", text[i], text)
				}
			}
			word.WriteByte(plain)
			inWord = true
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			quote, inWord = c, true
		case quote == 0 && strings.IndexByte(" \t\n\r", c) >= 0:
			if inWord {
				words = append(words, word.String())
			}
			word.Reset()
			inWord = false
		default:
			word.WriteByte(c)
			inWord = true
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("a quote is not closed in %q", text)
	}
	if inWord {
		words = append(words, word.String())
	}
	return words, nil
}
