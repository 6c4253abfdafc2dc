// Package secrecy detects leaks of a site's secrets. It records all secrets in the Secrets of the site's clusters, and
// all versions of all other objects. It then searches for each secret in these objects, in the logs of all programs and
// hosts, and in recorded output: metrics, answers and the command line.
package secrecy

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/controlplane"
)

// Watch has the secrets of a site, and the directory with everything else that was recorded.
type Watch struct {
	dir string

	mu      sync.Mutex
	secrets map[string]string // secret → what it is
	users   map[string]string // secrets of users in MachineConfigs, which readers of MachineConfigs can know
	failure error
}

// Start records all objects of clusters in files of dir, which also has the logs, until ctx is done.
func Start(ctx context.Context, dir string, clusters ...*controlplane.ControlPlane) (*Watch, error) {
	w := &Watch{dir: dir, secrets: map[string]string{}, users: map[string]string{}}
	for _, cluster := range clusters {
		if err := w.follow(ctx, cluster); err != nil {
			return nil, fmt.Errorf("%s: %w", cluster.Name, err)
		}
	}
	return w, nil
}

func (w *Watch) follow(ctx context.Context, cluster *controlplane.ControlPlane) error {
	finder, err := discovery.NewDiscoveryClientForConfig(cluster.Config)
	if err != nil {
		return err
	}
	kinds, err := finder.ServerPreferredResources()
	if err != nil {
		return err
	}
	resources, err := discovery.GroupVersionResources(discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "watch"}}, kinds))
	if err != nil {
		return err
	}
	objects, err := dynamic.NewForConfig(cluster.Config)
	if err != nil {
		return err
	}
	informers := dynamicinformer.NewDynamicSharedInformerFactory(objects, 0)
	for resource := range resources {
		if _, err := informers.ForResource(resource).Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { w.see(cluster.Name, object) },
			UpdateFunc: func(_, object any) { w.see(cluster.Name, object) },
		}); err != nil {
			return err
		}
	}
	informers.Start(ctx.Done())
	for resource, synced := range informers.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return fmt.Errorf("%s can't be watched", resource)
		}
	}
	return nil
}

// see records the secrets of a Secret, or another object.
func (w *Watch) see(cluster string, seen any) {
	object := seen.(*unstructured.Unstructured)
	if object.GetKind() != "Secret" {
		text, err := json.Marshal(object)
		file := "objects"
		if strings.HasPrefix(object.GetKind(), "MachineConfig") && object.GetKind() != "MachineConfigPool" {
			file = "machineconfigs"
		}
		w.note(err)
		w.Record(cluster+"-"+file, string(text))
		return
	}
	secret := &corev1.Secret{}
	w.note(runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, secret))
	name := cluster + " Secret " + secret.Namespace + "/" + secret.Name
	if pointer, err := ignition.ParsePointer(secret.Data["value"]); err == nil {
		w.AddSecret(name+": the pointer's token", pointer.Token)
	}
	w.AddSecret(name+": the secret half of the join credential", string(secret.Data["token-secret"]))
	w.AddSecret(name+": the token", string(secret.Data["token"]))
	if packed := secret.Data[bootstrapv1.OverlayKey]; len(packed) > 64 && secret.Labels[bootstrapv1.OverlayLabel] != "" {
		w.AddSecret(name+": an overlay", string(packed[len(packed)/2:][:32]))
	}
	for _, content := range secret.Data {
		for _, key := range keyData.FindAllStringSubmatch(string(content), -1) {
			if pem, err := base64.StdEncoding.DecodeString(key[1]); err == nil {
				w.AddSecret(name+": the key of a kubeconfig", string(pem))
			}
		}
	}
}

var keyData = regexp.MustCompile(`client-key-data: (\S+)`)

// AddSecret records a secret. It ignores empty secrets.
func (w *Watch) AddSecret(what, secret string) { w.keep(w.secrets, what, secret) }

// AddUserSecret records a secret that a user has put into a MachineConfig.
func (w *Watch) AddUserSecret(what, secret string) { w.keep(w.users, what, secret) }

func (w *Watch) keep(in map[string]string, what, secret string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	// The header and the first line of a key are not secret.
	if _, body, ok := strings.Cut(secret, "KEY-----\n"); ok {
		secret, _, _ = strings.Cut(body, "\n-----END")
		secret = secret[strings.Index(secret, "\n")+1:]
	}
	if secret != "" {
		in[secret] = what
	}
}

// Record records output of a source.
func (w *Watch) Record(source, text string) {
	file, err := os.OpenFile(filepath.Join(w.dir, "output-of-"+source+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = file.WriteString(text + "\n")
		_ = file.Close()
	}
	w.note(err)
}

func (w *Watch) note(err error) {
	if err != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.failure = err
	}
}

// Findings are the results of Leaks.
type Findings struct {
	// Secrets is the number of secrets.
	Secrets int
	// Files are the sizes in bytes of the searched files, by path in the site's directory.
	Files map[string]int
	// Leaks are descriptions of leaked secrets and their files.
	Leaks []string
}

// Leaks searches for all secrets in all logs of the directory: as plain text, in base64 at any offset, and for keys
// line by line.
func (w *Watch) Leaks() (Findings, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	findings := Findings{Secrets: len(w.secrets) + len(w.users), Files: map[string]int{}}
	all, poolboots := newNeedles(w.secrets, w.users), newNeedles(w.secrets)
	err := filepath.WalkDir(w.dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".log" {
			return ignoreGone(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return ignoreGone(err)
		}
		name, err := filepath.Rel(w.dir, path)
		findings.Files[name] = len(text)
		needles := all
		if strings.HasSuffix(path, "-machineconfigs.log") {
			needles = poolboots
		}
		for what, line := range needles.in(string(text)) {
			findings.Leaks = append(findings.Leaks, fmt.Sprintf("%s has %s: %s", name, what, line))
		}
		return err
	})
	if w.failure != nil {
		err = w.failure
	}
	return findings, err
}

// ignoreGone ignores files that running programs have deleted.
func ignoreGone(err error) error {
	if os.IsNotExist(err) {
		return nil
	}
	return err
}
