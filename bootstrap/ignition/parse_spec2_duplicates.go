package ignition

import (
	"slices"

	types2_4 "github.com/coreos/ignition/config/v2_4/types"
)

// removeDuplicates keeps the last of duplicate files, units, users and certificate authorities of a spec 2 document, as
// hosts with spec 2 do; spec 3 refuses duplicates. Like the Machine Config Operator, it keeps all drop-ins of units and
// all SSH keys of users. Files that append are left to the converter.
func removeDuplicates(config types2_4.Config) types2_4.Config {
	config.Storage.Files = keepLast(config.Storage.Files, func(file types2_4.File) (string, bool) { return file.Path, !file.Append })
	dropins, keys := map[string][][]types2_4.SystemdDropin{}, map[string][][]types2_4.SSHAuthorizedKey{}
	for _, unit := range config.Systemd.Units {
		dropins[unit.Name] = append(dropins[unit.Name], unit.Dropins)
	}
	for _, user := range config.Passwd.Users {
		keys[user.Name] = append(keys[user.Name], user.SSHAuthorizedKeys)
	}
	config.Systemd.Units = keepLast(config.Systemd.Units, func(unit types2_4.Unit) (string, bool) { return unit.Name, true })
	for i := range config.Systemd.Units {
		unit := &config.Systemd.Units[i]
		if all := dropins[unit.Name]; len(all) > 1 {
			slices.Reverse(all)
			seen := map[string]bool{}
			unit.Dropins = slices.DeleteFunc(slices.Concat(all...), func(dropin types2_4.SystemdDropin) bool {
				isEarlier := seen[dropin.Name]
				seen[dropin.Name] = true
				return isEarlier
			})
		}
	}
	config.Passwd.Users = keepLast(config.Passwd.Users, func(user types2_4.PasswdUser) (string, bool) { return user.Name, true })
	for i := range config.Passwd.Users {
		user := &config.Passwd.Users[i]
		slices.Reverse(keys[user.Name])
		user.SSHAuthorizedKeys = slices.Concat(keys[user.Name]...)
	}
	tls := &config.Ignition.Security.TLS
	tls.CertificateAuthorities = keepLast(tls.CertificateAuthorities, func(ca types2_4.CaReference) (string, bool) { return ca.Source, true })
	for i := range config.Passwd.Users {
		user := &config.Passwd.Users[i]
		user.SSHAuthorizedKeys = keepLast(user.SSHAuthorizedKeys, func(key types2_4.SSHAuthorizedKey) (string, bool) { return string(key), true })
	}
	return config
}

// keepLast keeps the last entry of each key, at the position of the first. An entry whose key does not count is always
// kept.
func keepLast[Entry any](entries []Entry, keyOf func(Entry) (key string, counts bool)) []Entry {
	var out []Entry
	at := map[string]int{}
	for _, entry := range entries {
		key, counts := keyOf(entry)
		if i, ok := at[key]; ok && counts {
			out[i] = entry
			continue
		}
		if counts {
			at[key] = len(out)
		}
		out = append(out, entry)
	}
	return out
}
