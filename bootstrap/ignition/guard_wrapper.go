package ignition

import (
	"fmt"
	"path"
	"strings"
)

// GuardWrapper is Guard for the words of a kubelet wrapper, which systemd starts with the kubelet's own command after
// them. It refuses another kubelet, which could read this command as values of its flags, flags that identify the Node,
// variables with such flags, and commands that change the host's name. As with units, it does not check what the
// program of the wrapper does. It returns nil or a *GuardError.
func GuardWrapper(words []string) error {
	g := &guard{}
	for i, word := range words {
		if path.Base(word) == strings.TrimSuffix(KubeletUnit, path.Ext(KubeletUnit)) {
			g.refuse(fmt.Sprintf("[%d]", i), "%s: the kubelet's own command is added to the wrapper: leave it and its flags out, and set spec.kubelet.configuration", word)
			return g.err()
		}
		if before := len(g.refusals); before == 0 {
			g.checkText(fmt.Sprintf("[%d]", i), "the wrapper of the kubelet", []byte(word))
		}
	}
	if len(g.refusals) == 0 {
		g.checkText("", "the wrapper of the kubelet", []byte(strings.Join(words, " ")))
	}
	return g.err()
}
