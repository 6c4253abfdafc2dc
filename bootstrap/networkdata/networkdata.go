// Package networkdata reads the network data of a host, which OpenStack defines (network_data.json) and Metal3 renders,
// and writes it as files of systemd-networkd or NetworkManager. The network data of a user is not trusted: whatever
// gets into a file is a number, an address, a word of a list, or a name without special characters.
package networkdata

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"regexp"

	"sigs.k8s.io/yaml"
)

// Limits of the network data.
const (
	// MaxSize is the maximum size of the document in bytes.
	MaxSize  = 256 << 10
	maxLinks = 256
	// maxNetworks also limits the routes of all networks.
	maxNetworks = 1024
	// maxServices limits each list of DNS servers. Each interface gets the global ones.
	maxServices = 16
)

// Data is the network data of a host. It is valid.
type Data struct {
	links []*link
}

// File is a file of the host.
type File struct {
	Path     string
	Mode     int
	Contents []byte
}

// filePrefix begins the names of all files. With the same names, those in /etc replace those in /run.
const filePrefix = "70-network-data-"

// Addresses returns the static addresses of the host.
func (d *Data) Addresses() []netip.Addr {
	var addresses []netip.Addr
	for _, l := range d.links {
		for _, f := range l.families() {
			for _, prefix := range f.addresses {
				addresses = append(addresses, prefix.Addr())
			}
		}
	}
	return addresses
}

// CheckInterfaces returns an error if the host lacks an interface that the network data configures by its MAC address.
// Names are not compared: an interface can have another one in the image than in the inspection.
func (d *Data) CheckInterfaces(macs []string) error {
	known := map[string]bool{}
	for _, text := range macs {
		if mac, err := parseMAC(text); err == nil {
			known[mac] = true
		}
	}
	for i, l := range d.links {
		if l.kind == ethernet && l.mac != "" && !known[l.mac] {
			return fmt.Errorf("links[%d].ethernet_mac_address: the host has no interface with the MAC address %s: correct it, or inspect the host again", i, l.mac)
		}
	}
	return nil
}

var line = regexp.MustCompile(`\bline \d+`)

// Parse reads network data in JSON or YAML. Errors name the entry and the field. The document can be a Secret that the
// user must not read, so they have only what is in an entry that looks like network data.
func Parse(document []byte) (*Data, error) {
	if len(document) > MaxSize {
		return nil, fmt.Errorf("the network data has %d bytes: the maximum is %d", len(document), MaxSize)
	}
	if bytes.IndexByte(document, '&') >= 0 { // an alias of a long text, thousands of times, would take gigabytes
		return nil, errors.New("the network data has the character &: write what a YAML anchor stands for")
	}
	text, err := yaml.YAMLToJSONStrict(document)
	if err != nil {
		message := "the network data is not valid YAML, or has a key twice"
		if at := line.FindString(err.Error()); at != "" {
			message += ": see " + at
		}
		return nil, errors.New(message)
	}
	var root map[string]json.RawMessage
	if json.Unmarshal(text, &root) != nil {
		return nil, errors.New("the network data is not an object with the fields links, networks and services")
	}
	for key := range root {
		if key != "links" && key != "networks" && key != "services" {
			return nil, errors.New("the network data has a field other than links, networks and services: remove it")
		}
	}
	p := &parser{byID: map[string]*link{}}
	p.links(p.list("links", root["links"], maxLinks))
	p.networks(p.list("networks", root["networks"], maxNetworks))
	p.assignServers(p.services(p.list("services", root["services"], maxServices)))
	if p.err != nil {
		return nil, p.err
	}
	return &Data{links: p.all}, nil
}

// parser builds Data. Its methods keep the first error, and continue with zero values.
type parser struct {
	all    []*link
	byID   map[string]*link
	routes int
	err    error
}

// failf keeps an error at a field.
func (p *parser) failf(path, format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf("%s: %s", path, fmt.Sprintf(format, args...))
	}
}
