package ignition_test

import (
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

var _ = DescribeTable("CheckModes warns of a mode that was probably meant otherwise", func(mode int, remedy string) {
	config, err := ignition.Parse(fmt.Appendf(nil, `{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/a"},{"path":"/b","mode":%d}],"directories":[{"path":"/c","mode":493}]}}`, mode))
	Expect(err).NotTo(HaveOccurred())
	if remedy == "" {
		Expect(ignition.CheckModes(config)).To(BeEmpty())
		return
	}
	Expect(ignition.CheckModes(config)).To(ConsistOf(And(HaveField("Path", "storage.files[1].mode"), HaveField("Message", Equal(remedy)))))
},
	Entry("0420 in YAML", 0o420, "272 is 0420, with which the group or others can do what the owner can't: if 0644 is meant, set it, or the decimal 420 without a leading 0"),
	Entry("0493 as a decimal", 493, ""),
	Entry("644 in JSON", 644, "644 is 01204, with which the group or others can do what the owner can't: if 0644 is meant, set 420, or 0644 in YAML"),
	Entry("755 in JSON", 755, "755 is 01363, with which the group or others can do what the owner can't: if 0755 is meant, set 493, or 0755 in YAML"),
	Entry("600 in JSON", 600, "600 is 01130, with which the group or others can do what the owner can't: if 0600 is meant, set 384, or 0600 in YAML"),
	Entry("for others only", 0o007, "7 is 07, with which the group or others can do what the owner can't"),
	Entry("0644", 0o644, ""), Entry("0640", 0o640, ""), Entry("0400", 0o400, ""), Entry("0700", 0o700, ""), Entry("none", 0, ""),
)
