package controllers

import (
	"context"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"sigs.k8s.io/cluster-api/controllers/crdmigrator"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// The migrator can patch Poolboot's own CRDs, which RBAC lists by name, and writes each of their objects without a
// change. For kinds that the manager does not change otherwise, the policy manager-storage-migration in config/rbac
// enforces that.
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=get;list;watch
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions;customresourcedefinitions/status,verbs=patch,resourceNames=poolbootconfigs.bootstrap.cluster.x-k8s.io;poolbootconfigtemplates.bootstrap.cluster.x-k8s.io;enrollments.poolboot.io;machineconfigpools.poolboot.io;machineconfigs.poolboot.io
// +kubebuilder:rbac:groups=bootstrap.cluster.x-k8s.io,resources=poolbootconfigs;poolbootconfigtemplates,verbs=get;list;patch
// +kubebuilder:rbac:groups=bootstrap.cluster.x-k8s.io,resources=poolbootconfigs/status,verbs=patch
// +kubebuilder:rbac:groups=poolboot.io,resources=enrollments;machineconfigpools;machineconfigs,verbs=get;list;patch
// +kubebuilder:rbac:groups=poolboot.io,resources=enrollments/status;machineconfigpools/status;machineconfigs/status,verbs=patch

// MigrationPhases are the valid values of Options.SkipCRDMigrationPhases.
var MigrationPhases = []crdmigrator.Phase{crdmigrator.StorageVersionMigrationPhase, crdmigrator.CleanupManagedFieldsPhase}

// migrated returns the kinds of Poolboot's CRDs. Objects with a status are written through the status subresource. This
// bypasses the webhooks, which could refuse an object that was valid when it was created. All objects are read from the
// API server, because the cache has no managed fields and, with --namespace, not all objects.
func migrated() map[client.Object]crdmigrator.ByObjectConfig {
	byStatus := crdmigrator.ByObjectConfig{UseStatusForStorageVersionMigration: true}
	return map[client.Object]crdmigrator.ByObjectConfig{
		&bootstrapv1.PoolbootConfig{}:         byStatus,
		&bootstrapv1.PoolbootConfigTemplate{}: {},
		&poolv1.Enrollment{}:                  byStatus,
		&poolv1.MachineConfig{}:               byStatus,
		&poolv1.MachineConfigPool{}:           byStatus,
	}
}

// setupMigration registers Cluster API's migrator of stored objects. It has one worker, to limit the load on the API
// server during an upgrade.
func setupMigration(ctx context.Context, mgr ctrl.Manager, opts *Options) error {
	migrator := &crdmigrator.CRDMigrator{Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Config: migrated()}
	for _, phase := range opts.SkipCRDMigrationPhases {
		migrator.SkipCRDMigrationPhases = append(migrator.SkipCRDMigrationPhases, crdmigrator.Phase(phase))
	}
	if err := migrator.SetupWithManager(ctx, mgr, controller.Options{MaxConcurrentReconciles: 1}); err != nil {
		return fmt.Errorf("CRD migrator: %w", err)
	}
	return nil
}
