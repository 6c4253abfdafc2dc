package cli

import (
	"regexp"
	"strings"
)

// Errors of cobra about flags that must or must not be set together, which name the group of the flags.
var (
	flagMissing   = regexp.MustCompile(`^required flag\(s\) (.*) not set$`)
	oneRequired   = regexp.MustCompile(`^at least one of the flags in the group \[(.*)\] is required$`)
	setTogether   = regexp.MustCompile(`^if any flags in the group \[(.*)\] are set they must all be set; missing \[(.*)\]$`)
	notTogether   = regexp.MustCompile(`^if any flags in the group \[.*\] are set none of the others can be; \[(.*)\] were all set$`)
	quotedAndList = strings.NewReplacer(`"`, "", ",", "")
)

// describeFlags returns an error about flags in words of a command line, and every other error as it is.
func describeFlags(text string) string {
	flags := func(names, last string) string {
		list := strings.Fields(quotedAndList.Replace(names))
		for i := range list {
			list[i] = "--" + list[i]
		}
		if len(list) == 1 {
			return list[0]
		}
		return strings.Join(list[:len(list)-1], ", ") + " " + last + " " + list[len(list)-1]
	}
	if match := flagMissing.FindStringSubmatch(text); match != nil {
		return "set " + flags(match[1], "and")
	}
	if match := oneRequired.FindStringSubmatch(text); match != nil {
		return "set " + flags(match[1], "or")
	}
	if match := setTogether.FindStringSubmatch(text); match != nil {
		return "set " + flags(match[2], "and") + ": " + flags(match[1], "and") + " belong together"
	}
	if match := notTogether.FindStringSubmatch(text); match != nil {
		return flags(match[1], "and") + " exclude each other: leave out all but one"
	}
	return text
}
