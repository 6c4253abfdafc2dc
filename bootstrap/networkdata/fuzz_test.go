package networkdata_test

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/networkdata"
)

// FuzzParse verifies that files have only settings, and are in their directories, whatever the network data contains.
func FuzzParse(f *testing.F) {
	everything, err := os.ReadFile(filepath.Join("testdata", "everything.yaml"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(everything)
	f.Add([]byte(`{"links":[{"id":"a","type":"phy","name":"b"},{"id":"c","type":"vlan","vlan_id":1,"vlan_link":"a"}],"networks":[{"link":"c","type":"ipv4_dhcp"}]}`))
	settings := regexp.MustCompile(`^(\[[A-Za-z0-9]+\]\n([A-Za-z0-9_-]+=[A-Za-z0-9:;.,/+=_-]+\n)+\n?)+$`)
	name := regexp.MustCompile(`^70-network-data-[A-Za-z0-9._:-]+\.(netdev|network|nmconnection)$`)
	f.Fuzz(func(t *testing.T, document []byte) {
		data, err := networkdata.Parse(document)
		if err != nil {
			return
		}
		paths := map[string]bool{}
		for _, file := range slices.Concat(data.Networkd(), data.NetworkManager()) {
			dir := path.Dir(file.Path)
			if !settings.Match(file.Contents) || !name.MatchString(path.Base(file.Path)) || paths[file.Path] ||
				dir != networkdata.NetworkdDirectory && dir != networkdata.NetworkManagerDirectory {
				t.Fatalf("%s:\n%s", file.Path, file.Contents)
			}
			paths[file.Path] = true
		}
	})
}
