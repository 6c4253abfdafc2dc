// Package regexsize measures regular expressions that users write, without compiling them. Go's regexp takes at most
// time proportional to the program's instructions times the characters that it looks at, and a counted repetition such
// as (?:(?:a?){30}){30} makes a large program of a short text. One match cannot be interrupted, so only a limit on the
// product of both holds. It is pure: no client, no I/O.
package regexsize

import (
	"fmt"
	"regexp/syntax"
)

// Unlimited is the length of a text that has no limit.
const Unlimited = -1

// Measure is how expensive a regular expression can be.
type Measure struct {
	// Instructions is how many instructions its compiled program has at most.
	Instructions int
	// Longest is the number of characters of the longest text that it matches; Unlimited when there is no limit.
	Longest int
	// Anchored is true when it matches at the beginning of a text only.
	Anchored bool
}

// Of measures a regular expression in the syntax of Go's regexp. The error says why it is none.
func Of(expression string) (Measure, error) {
	parsed, err := syntax.Parse(expression, syntax.Perl)
	if err != nil {
		return Measure{}, fmt.Errorf("%q is not a valid regular expression: %w", expression, err)
	}
	return Measure{
		Instructions: instructions(parsed) + 3, // a program begins with fail, ends with match, and may be searched for from anywhere
		Longest:      longest(parsed),
		Anchored:     anchored(parsed),
	}, nil
}

// Steps is the largest number of steps that one match takes in a text of so many characters.
func (m Measure) Steps(characters uint64) uint64 {
	if m.Anchored && m.Longest != Unlimited {
		characters = min(characters, uint64(m.Longest))
	}
	return (characters + 1) * uint64(m.Instructions)
}

// StepsOfAll is the largest number of steps that it takes to find all matches, or the first limit ones, in a text of so
// many characters. The search for each may look ahead as far as the longest match reaches before it settles for a
// shorter one.
func (m Measure) StepsOfAll(characters, limit uint64) uint64 {
	ahead := characters
	if m.Longest != Unlimited {
		ahead = min(ahead, uint64(m.Longest))
	}
	if m.Anchored {
		limit = min(limit, 1)
	}
	return m.Steps(characters) + min(characters+1, limit)*(ahead+1)*uint64(m.Instructions)
}

// instructions counts what regexp/syntax makes of an expression: a repetition is compiled as often as it may repeat.
func instructions(re *syntax.Regexp) int {
	sum := 0
	for _, sub := range re.Sub {
		sum += instructions(sub)
	}
	switch re.Op {
	case syntax.OpLiteral:
		return max(len(re.Rune), 1)
	case syntax.OpCapture, syntax.OpStar:
		return sum + 2
	case syntax.OpPlus, syntax.OpQuest:
		return sum + 1
	case syntax.OpConcat:
		return max(sum, 1)
	case syntax.OpAlternate:
		return sum + len(re.Sub)
	case syntax.OpRepeat:
		copies := re.Max
		if copies < 0 {
			copies = re.Min + 1
		}
		return max(copies, 1) * (sum + 1)
	default:
		return 1
	}
}

// longest returns the length of the longest text that an expression matches, in characters.
func longest(re *syntax.Regexp) int {
	switch re.Op {
	case syntax.OpLiteral:
		return len(re.Rune)
	case syntax.OpCharClass, syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return 1
	case syntax.OpCapture, syntax.OpQuest:
		return longest(re.Sub[0])
	case syntax.OpStar, syntax.OpPlus:
		return times(longest(re.Sub[0]), Unlimited)
	case syntax.OpRepeat:
		return times(longest(re.Sub[0]), re.Max)
	case syntax.OpConcat:
		sum := 0
		for _, sub := range re.Sub {
			length := longest(sub)
			if length == Unlimited {
				return Unlimited
			}
			sum += length
		}
		return sum
	case syntax.OpAlternate:
		most := 0
		for _, sub := range re.Sub {
			length := longest(sub)
			if length == Unlimited {
				return Unlimited
			}
			most = max(most, length)
		}
		return most
	default: // what matches no character
		return 0
	}
}

// times is the length of a text repeated so many times, each of which may be Unlimited.
func times(length, most int) int {
	switch {
	case length == 0 || most == 0:
		return 0
	case length == Unlimited || most < 0:
		return Unlimited
	}
	return length * most
}

func anchored(re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpBeginText:
		return true
	case syntax.OpCapture:
		return anchored(re.Sub[0])
	case syntax.OpConcat:
		return len(re.Sub) > 0 && anchored(re.Sub[0])
	default:
		return false
	}
}
